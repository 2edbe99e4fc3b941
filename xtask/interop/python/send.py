"""Sends one record to each partition through librdkafka and says what came of it.

usage: send.py BOOTSTRAP TOPIC PARTITIONS PREFIX
Prints "acked PARTITION OFFSET KEY" or "refused PARTITION ERROR MESSAGE" a partition.
"""

import sys

from confluent_kafka import Producer

from common import say, settings


def main():
    bootstrap, topic, partitions, prefix = sys.argv[1:5]
    producer = Producer(settings(bootstrap, **{"acks": "all", "message.timeout.ms": 15000}))

    def delivered(error, message):
        if error is not None:
            say("refused", message.partition(), error.name(), error.str())
        else:
            say("acked", message.partition(), message.offset(), message.key().decode())

    for partition in range(int(partitions)):
        producer.produce(topic, "after", f"{prefix}-{partition}", partition, on_delivery=delivered)
    sys.exit(0 if producer.flush(20) == 0 else 1)


main()
