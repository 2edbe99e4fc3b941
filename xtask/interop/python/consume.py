"""Reads a topic from start to end with assigned partitions through librdkafka.

usage: consume.py BOOTSTRAP TOPIC PARTITIONS ISOLATION SECONDS
Prints "record PARTITION OFFSET KEY" a record, then "end PARTITION POSITION HIGH" a partition.
Ends with status 1 if the end was not reached in time.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition, OFFSET_BEGINNING

from common import say, settings


def main():
    bootstrap, topic, partitions, isolation, seconds = sys.argv[1:6]
    consumer = Consumer(
        settings(
            bootstrap,
            **{
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            },
        )
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(int(partitions))])
    deadline = time.monotonic() + int(seconds)
    ended = {}
    while len(ended) < int(partitions) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                ended[message.partition()] = message.offset()
                continue
            raise SystemExit(f"not read: {message.error()}")
        say("record", message.partition(), message.offset(), message.key().decode())
    for partition in range(int(partitions)):
        high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        say("end", partition, ended.get(partition, -1), high)
    consumer.close()
    sys.exit(0 if len(ended) == int(partitions) else 1)


main()
