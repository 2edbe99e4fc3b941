"""confluent-kafka against a broker: topics, produce with each acks, fetch, offsets.

usage: smoke_confluent.py BOOTSTRAP TOPIC
Prints "ok NAME" or "not ok NAME: why" a check.
"""

import sys

from confluent_kafka import Consumer, Producer, TopicPartition, OFFSET_BEGINNING
from confluent_kafka.admin import AdminClient, NewTopic

from common import say, settings

BOOTSTRAP, TOPIC = sys.argv[1:3]


def check(name, work):
    try:
        work()
        say("ok", name)
    except Exception as error:  # every failure of a check is its result
        say("not ok", name + ":", " ".join(f"{type(error).__name__}: {error}".split()))


def create():
    admin = AdminClient(settings(BOOTSTRAP))
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    assert TOPIC in admin.list_topics(timeout=10).topics


def produce(acks, idempotent):
    def work():
        producer = Producer(
            settings(BOOTSTRAP, **{"acks": acks, "enable.idempotence": idempotent, "message.timeout.ms": 15000})
        )
        errors = []
        for i in range(10):
            producer.produce(
                TOPIC,
                f"v{i}",
                f"{acks}-{idempotent}-{i}",
                0,
                headers=[("h", b"1"), ("h", None)],
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(20) == 0, "not delivered in time"
        assert errors == [None] * 10, errors

    return work


def consume():
    consumer = Consumer(settings(BOOTSTRAP, **{"group.id": "unused", "enable.auto.commit": False}))
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
    assert (low, high) == (0, 40), (low, high)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    seen = []
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is None:
            continue
        assert not message.error(), message.error()
        seen.append((message.offset(), message.headers()))
        if len(seen) == 40:
            break
    consumer.close()
    assert [offset for offset, _ in seen] == list(range(40)), seen
    assert seen[0][1] == [("h", b"1"), ("h", None)], seen[0]


def times():
    consumer = Consumer(settings(BOOTSTRAP, **{"group.id": "unused"}))
    found = consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=10)[0]
    consumer.close()
    assert found.offset == 0, found


check("confluent.create_and_list", create)
check("confluent.produce_acks_0", produce("0", False))
check("confluent.produce_acks_1", produce("1", False))
check("confluent.produce_acks_all", produce("all", False))
check("confluent.produce_idempotent", produce("all", True))
check("confluent.fetch_assigned", consume)
check("confluent.offsets_for_times", times)
