// Reads one partition from many places, each to its end, through franz-go.
//
// usage: read-from BOOTSTRAP SECONDS < JOBS
// Jobs and what is printed are as in ReadFrom.java, but for "found". This client says no position: control records are
// asked for, and the position is behind the last record of any kind.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	name, topic, isolation string
	maxBytes               int32
	start                  kgo.Offset
	position, end          int64
}

func parse(line string) (job, error) {
	words := strings.Fields(line)
	if len(words) != 6 {
		return job{}, fmt.Errorf("%q has %d words", line, len(words))
	}
	number := func(word string) (int64, error) { return strconv.ParseInt(word, 10, 64) }
	maxBytes, err := strconv.ParseInt(words[3], 10, 32)
	if err != nil {
		return job{}, err
	}
	end, err := number(words[5])
	if err != nil {
		return job{}, err
	}
	one := job{name: words[0], topic: words[1], isolation: words[2], maxBytes: int32(maxBytes), end: end}
	if at, ok := strings.CutPrefix(words[4], "@"); ok {
		timestamp, err := number(at)
		one.start = kgo.NewOffset().AfterMilli(timestamp)
		return one, err
	}
	one.position, err = number(words[4])
	one.start = kgo.NewOffset().At(one.position)
	return one, err
}

func read(bootstrap string, one job, limit time.Duration, out *bufio.Writer) (bool, error) {
	isolation := kgo.ReadUncommitted()
	if one.isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{one.topic: {0: one.start}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxBytes(one.maxBytes),
		kgo.FetchMaxPartitionBytes(one.maxBytes),
		kgo.FetchMaxWait(20*time.Millisecond),
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	position := one.position
	for position < one.end && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() == nil {
			if err := fetches.Err(); err != nil {
				return false, fmt.Errorf("%s: %w", one.topic, err)
			}
		}
		for _, record := range fetches.Records() {
			position = record.Offset + 1
			if !record.Attrs.IsControl() {
				fmt.Fprintf(out, "record %s %d %s %s\n", one.name, record.Offset, say(record.Key), say(record.Value))
			}
		}
	}
	fmt.Fprintf(out, "end %s %d\n", one.name, position)
	return position >= one.end, nil
}

func say(bytes []byte) string {
	switch {
	case bytes == nil:
		return "-"
	case len(bytes) == 0:
		return "="
	case len(bytes) <= 64:
		return hex.EncodeToString(bytes)
	}
	digest := sha256.Sum256(bytes)
	return fmt.Sprintf("%d:%s", len(bytes), hex.EncodeToString(digest[:]))
}

func run() error {
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	jobs := bufio.NewScanner(os.Stdin)
	for hung := 0; hung < 3 && jobs.Scan(); {
		one, err := parse(jobs.Text())
		if err != nil {
			return err
		}
		reached, err := read(os.Args[1], one, time.Duration(seconds)*time.Second, out)
		if err != nil {
			return err
		}
		if !reached {
			hung++
		}
	}
	return jobs.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
