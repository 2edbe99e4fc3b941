"""Fills a topic with every codec through librdkafka, then ends inside an open transaction.

usage: seed.py BOOTSTRAP TOPIC PARTITIONS RECORDS VALUE_BYTES
Prints a line a record: "KIND PARTITION OFFSET KEY", KIND being committed, aborted or open.
"""

import os
import random
import sys

from confluent_kafka import Producer

from common import TOPIC_TIMEOUT_MS, say, settings

RANDOM = random.Random(20260102)


def producer(bootstrap, codec, idempotent, transactional_id=None):
    more = {
        "compression.type": codec,
        "enable.idempotence": idempotent,
        "acks": "all",
        "linger.ms": 5,
        "message.timeout.ms": TOPIC_TIMEOUT_MS,
    }
    if transactional_id:
        more["transactional.id"] = transactional_id
        more["transaction.timeout.ms"] = 900000
    return Producer(settings(bootstrap, **more))


def send(p, topic, partitions, records, size, prefix):
    sent = []

    def delivered(error, message):
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        sent.append((message.partition(), message.offset(), message.key().decode()))

    for i in range(records):
        for partition in range(partitions):
            value = "%0*x" % (size, RANDOM.getrandbits(size * 4))
            p.produce(topic, value[:size], f"{prefix}-{i}", partition, on_delivery=delivered)
        p.poll(0)
    if p.flush(30) != 0:
        raise SystemExit("not everything was delivered in time")
    return sent


def report(kind, sent):
    for partition, offset, key in sent:
        say(kind, partition, offset, key)


def main():
    bootstrap, topic, partitions, records, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        plain = producer(bootstrap, codec, False)
        report("committed", send(plain, topic, partitions, records, size, f"rd-plain-{codec}"))
        idempotent = producer(bootstrap, codec, True)
        report("committed", send(idempotent, topic, partitions, records, size, f"rd-idempotent-{codec}"))
        txn = producer(bootstrap, codec, True, f"rd-txn-{codec}")
        txn.init_transactions(30)
        txn.begin_transaction()
        first = send(txn, topic, partitions, records, size, f"rd-commit-{codec}")
        txn.commit_transaction(30)
        report("committed", first)
        txn.begin_transaction()
        second = send(txn, topic, partitions, records, size, f"rd-abort-{codec}")
        txn.abort_transaction(30)
        report("aborted", second)
    left = producer(bootstrap, "none", True, "rd-open")
    left.init_transactions(30)
    left.begin_transaction()
    report("open", send(left, topic, partitions, 3, size, "rd-open"))
    sys.stdout.flush()
    os._exit(0)


main()
