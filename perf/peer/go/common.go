// SPDX-License-Identifier: Apache-2.0

// What the programs share that put Go's runtime timers beside hwt: options
// given as name=value, results as lines "name unit value", clocks, histograms.
// One program has all workloads; the first argument says which.
//
// Who would call it unfair: who has Go 1.23 or later, with other timers than
// Debian's 1.19. Otherwise these are time.AfterFunc, Stop and Reset, as in
// net's deadlines; there is nothing to set. The collector is counted, since a
// program with so many timers pays for it.
package main

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	partsLog = 6
	parts    = 1 << partsLog
	ms       = int64(time.Millisecond)
)

var (
	options = map[string]string{}
	// What two readings of the clock cost that follow each other.
	clockCost int64
	origin    = time.Now()
)

func must(condition bool, what string) {
	if !condition {
		fmt.Fprintln(os.Stderr, "go:", what)
		os.Exit(2)
	}
}

func readOptions(arguments []string) {
	for _, argument := range arguments {
		name, value, found := strings.Cut(argument, "=")
		must(found, "an option without a value: "+argument)
		options[name] = value
	}
}

func fraction(name string, otherwise float64) float64 {
	text, found := options[name]
	if !found {
		return otherwise
	}
	value, err := strconv.ParseFloat(text, 64)
	must(err == nil, "not a number: "+name+"="+text)
	return value
}

func option(name string, otherwise int64) int64 {
	return int64(fraction(name, float64(otherwise)))
}

func print(name, unit string, value float64) {
	fmt.Printf("%s %s %.6g\n", name, unit, value)
}

// now is CLOCK_MONOTONIC, less what it was at the start.
func now() int64 {
	return int64(time.Since(origin))
}

func measureClock() {
	costs := make([]int64, 10001)
	for i := range costs {
		from := now()
		costs[i] = now() - from
	}
	sort.Slice(costs, func(i, j int) bool { return costs[i] < costs[j] })
	clockCost = costs[len(costs)/2]
}

// processCPU is user and system time of all threads, those of the collector
// among them.
func processCPU() int64 {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	must(err == nil, "getrusage failed")
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func sleepUntil(until int64) {
	for left := until - now(); left > 0; left = until - now() {
		time.Sleep(time.Duration(left))
	}
}

// random is SplitMix64, as the programs in C have it.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (r *random) below(end int64) int64 {
	return int64((r.next() >> 32) * uint64(end) >> 32)
}

// A histogram has memory that is there before the measurement. A power of two
// is divided into 64 parts: figures are at most 1.6 % too large. What is below
// zero is early, and counted by itself.
type histogram struct {
	cell              [(64 - partsLog) * parts]int64
	count, early, max int64
}

func (h *histogram) add(ns int64) {
	if ns < 0 {
		h.early++
		return
	}
	at := ns
	if ns >= parts {
		log := 63 - bits.LeadingZeros64(uint64(ns)) - partsLog
		at = int64(log)<<partsLog + ns>>log
	}
	h.cell[at]++
	h.count++
	if ns > h.max {
		h.max = ns
	}
}

// addCall adds a call that began then, less the clock's own cost.
func (h *histogram) addCall(from int64) {
	ns := now() - from - clockCost
	if ns < 0 {
		ns = 0
	}
	h.add(ns)
}

func (h *histogram) addAll(other *histogram) {
	for at, count := range other.cell {
		h.cell[at] += count
	}
	h.count += other.count
	h.early += other.early
	if other.max > h.max {
		h.max = other.max
	}
}

func upper(at int64) int64 {
	if at < 2*parts {
		return at
	}
	log := at>>partsLog - 1
	return (at-log<<partsLog+1)<<log - 1
}

// quantile is what so many of a thousand do not exceed.
func (h *histogram) quantile(permille int64) int64 {
	rank := (h.count*permille + 999) / 1000
	seen := int64(0)
	for at, count := range h.cell {
		seen += count
		if seen < rank || seen == 0 {
			continue
		}
		if upper(int64(at)) < h.max {
			return upper(int64(at))
		}
		break
	}
	return h.max
}

func (h *histogram) printCalls(name string) {
	print(name+"_p50_ns", "ns", float64(h.quantile(500)))
	print(name+"_p99_ns", "ns", float64(h.quantile(990)))
	print(name+"_p999_ns", "ns", float64(h.quantile(999)))
	print(name+"_max_ns", "ns", float64(h.max))
}

func (h *histogram) printLate() {
	print("late_p50_ms", "ms", float64(h.quantile(500))/1e6)
	print("late_p99_ms", "ms", float64(h.quantile(990))/1e6)
	print("late_max_ms", "ms", float64(h.max)/1e6)
}

func main() {
	workloads := map[string]func(){
		"pair": pair, "touch": touch}
	must(len(os.Args) > 1 && workloads[os.Args[1]] != nil,
		"no such workload")
	if len(os.Args) == 3 && os.Args[2] == "about" {
		fmt.Println("compiler", runtime.Compiler, runtime.Version())
		fmt.Println("flags none")
		fmt.Println("version", runtime.Version())
		return
	}
	readOptions(os.Args[2:])
	measureClock()
	workloads[os.Args[1]]()
}
