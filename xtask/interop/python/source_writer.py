"""Writes committed and aborted transactions to the source until standard input is closed.

usage: source_writer.py BOOTSTRAP TOPIC PARTITIONS PREFIX
Prints "committed PARTITION OFFSET KEY" or "aborted ..." a record. Ends after five minutes in any case.
"""

import select
import sys
import time

from confluent_kafka import Producer

from common import say, settings


def main():
    bootstrap, topic, partitions, prefix = sys.argv[1:5]
    producer = Producer(
        settings(bootstrap, **{"transactional.id": prefix, "linger.ms": 2, "compression.type": "lz4"})
    )
    producer.init_transactions(30)
    number = 0
    transactions = 0
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        ready, _, _ = select.select([sys.stdin], [], [], 0.1)
        if ready:
            break
        sent = []

        def delivered(error, message):
            if error is not None:
                raise SystemExit(f"not delivered: {error}")
            sent.append((message.partition(), message.offset(), message.key().decode()))

        producer.begin_transaction()
        for partition in range(int(partitions)):
            for _ in range(4):
                producer.produce(topic, f"value-{number}" * 8, f"{prefix}-{number}", partition, on_delivery=delivered)
                number += 1
        producer.flush(20)
        transactions += 1
        keep = transactions % 3 != 0
        if keep:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        for partition, offset, key in sent:
            say("committed" if keep else "aborted", partition, offset, key)
    say("done", number)


main()
