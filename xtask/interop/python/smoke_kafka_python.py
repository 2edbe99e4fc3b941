"""kafka-python against a broker: topics, produce, fetch, offsets.

usage: smoke_kafka_python.py BOOTSTRAP TOPIC
Prints "ok NAME" or "not ok NAME: why" a check.
"""

import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

BOOTSTRAP, TOPIC = sys.argv[1:3]


def check(name, work):
    try:
        work()
        print("ok", name, flush=True)
    except Exception as error:  # every failure of a check is its result
        print("not ok", name + ":", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


def create():
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP, request_timeout_ms=15000)
    admin.create_topics([NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)])
    assert TOPIC in admin.list_topics()
    admin.close()


def produce(acks, idempotent):
    def work():
        producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP, acks=acks, enable_idempotence=idempotent, max_block_ms=15000
        )
        sent = [producer.send(TOPIC, b"v%d" % i, b"k%d" % i, partition=0) for i in range(10)]
        producer.flush(20)
        assert [one.get(10).partition for one in sent] == [0] * 10
        producer.close(10)

    return work


def consume():
    consumer = KafkaConsumer(
        bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, auto_offset_reset="none", consumer_timeout_ms=15000
    )
    tp = TopicPartition(TOPIC, 0)
    consumer.assign([tp])
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 20}, consumer.end_offsets([tp])
    consumer.seek_to_beginning(tp)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 20:
            break
    consumer.close()
    assert seen == list(range(20)), seen


check("kafka-python.create_and_list", create)
check("kafka-python.produce_acks_1", produce(1, False))
check("kafka-python.produce_idempotent", produce("all", True))
check("kafka-python.fetch_assigned", consume)
