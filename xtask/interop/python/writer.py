"""Writes with an idempotent librdkafka producer until standard input is closed, through broker restarts.

usage: writer.py BOOTSTRAP TOPIC PARTITIONS PREFIX RECORDS_PER_SECOND
Prints "acked PARTITION OFFSET KEY" a record as soon as it is acknowledged: the ledger of a test.
A record that was refused or timed out prints "lost PARTITION ERROR KEY". Ends after five minutes in any case.
"""

import select
import sys
import time

from confluent_kafka import Producer

from common import say, settings


def main():
    bootstrap, topic, partitions, prefix, rate = sys.argv[1:6]
    producer = Producer(
        settings(
            bootstrap,
            **{
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120000,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
            },
        )
    )

    def delivered(error, message):
        if error is not None:
            say("lost", message.partition(), error.name(), message.key().decode())
        else:
            say("acked", message.partition(), message.offset(), message.key().decode())

    number = 0
    pause = 1.0 / float(rate)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        ready, _, _ = select.select([sys.stdin], [], [], pause)
        if ready:
            break
        if len(producer) < 5000:
            for partition in range(int(partitions)):
                producer.produce(topic, f"value-{number}" * 4, f"{prefix}-{number}", partition, on_delivery=delivered)
            number += 1
        producer.poll(0)
    left = producer.flush(60)
    say("done", number, left)
    sys.exit(0 if left == 0 else 1)


main()
