// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// What does a pair cost, time.AfterFunc and the Stop of an old one? See
// perf/pair.c, whose options these are. There are no ticks: the option is
// taken, and says how long to wait at both ends of the window.

const (
	batchMost    = 512
	blockSize    = 256
	blocks       = 4
	probeEveryMS = 50
	probeDelayMS = 200
	ms           = int64(time.Millisecond)
)

var mixMS = [4]int64{50, 250, 1000, 30000}

type pairLoad struct {
	producers, outstanding, tick, pace int64
	seconds                            float64
	mix, random, handoff               bool
	begun                              int64
	begin                              chan bool
	filled, ended, quit                sync.WaitGroup
	over                               chan bool
}

var (
	load pairLoad
	ran  int64
)

func count() {
	atomic.AddInt64(&ran, 1)
}

// A caller is a goroutine that makes calls: both of a pair, or with handoff one
// of them.
type caller struct {
	table                 []*time.Timer
	place, calls, refused int64
	lot                   random
	// Handles on their way. An empty block is the end.
	ring  chan []*time.Timer
	times histogram
	pairs bool
}

func (c *caller) delay() time.Duration {
	if load.mix {
		return time.Duration(mixMS[c.lot.next()>>62] * ms)
	}
	return 30 * time.Second
}

func (c *caller) next() int64 {
	if load.random {
		return c.lot.below(load.outstanding)
	}
	place := c.place
	c.place++
	if c.place == load.outstanding {
		c.place = 0
	}
	return place
}

func (c *caller) schedule() *time.Timer {
	return time.AfterFunc(c.delay(), count)
}

func (c *caller) replace(by *time.Timer) {
	place := &c.table[c.next()]
	if !(*place).Stop() {
		c.refused++
	}
	if by == nil {
		by = c.schedule()
	}
	*place = by
}

// beginCall gives -1 for a call that is not timed.
func (c *caller) beginCall() int64 {
	c.calls++
	if c.calls%sampleEvery != 1 {
		return -1
	}
	return now()
}

func (c *caller) endCall(from int64) {
	if from >= 0 {
		c.times.addCall(from)
	}
}

func (c *caller) makePairs(count int64) {
	for ; count > 0; count-- {
		from := c.beginCall()
		c.replace(nil)
		c.endCall(from)
	}
}

func (c *caller) sendBlock(count int64) {
	block := make([]*time.Timer, count)
	for i := range block {
		from := c.beginCall()
		block[i] = c.schedule()
		c.endCall(from)
	}
	c.ring <- block
}

func (c *caller) send(count int64) {
	for ; count > 0; count -= blockSize {
		if count < blockSize {
			c.sendBlock(count)
		} else {
			c.sendBlock(blockSize)
		}
	}
}

func (c *caller) cancelBlock(block []*time.Timer) {
	for _, timer := range block {
		from := c.beginCall()
		c.replace(timer)
		c.endCall(from)
	}
}

func (c *caller) behindPace(now int64) int64 {
	step := (now-load.begun)/ms + 1
	target := step * load.pace / (1000 * load.producers)
	if target > c.calls {
		return target - c.calls
	}
	sleepUntil(load.begun + step*ms)
	return 0
}

// nextBatch says how many pairs come next; 0: the end.
func (c *caller) nextBatch() int64 {
	batch := int64(0)
	for batch == 0 {
		now := now()
		if float64(now-load.begun) >= load.seconds*1e9 {
			return 0
		}
		batch = batchMost
		if load.pace > 0 {
			batch = c.behindPace(now)
		}
	}
	if batch > batchMost {
		return batchMost
	}
	return batch
}

func (c *caller) await() {
	load.filled.Done()
	<-load.begin
	c.calls = 0
	c.times = histogram{}
}

func (c *caller) end() {
	load.ended.Done()
	<-load.over
	for _, timer := range c.table {
		if !timer.Stop() {
			c.refused++
		}
	}
	load.quit.Done()
}

func (c *caller) produce() {
	c.table = make([]*time.Timer, load.outstanding)
	for i := range c.table {
		c.table[i] = c.schedule()
	}
	c.await()
	for n := c.nextBatch(); n > 0; n = c.nextBatch() {
		c.makePairs(n)
	}
	c.end()
}

func (c *caller) scheduleAll() {
	c.send(load.outstanding)
	c.await()
	for n := c.nextBatch(); n > 0; n = c.nextBatch() {
		c.send(n)
	}
	c.sendBlock(0)
	c.end()
}

func (c *caller) cancelAll() {
	for int64(len(c.table)) < load.outstanding {
		c.table = append(c.table, <-c.ring...)
	}
	c.await()
	for block := <-c.ring; len(block) > 0; block = <-c.ring {
		c.cancelBlock(block)
	}
	c.end()
}

func newCaller(callers *[]*caller) *caller {
	number := len(*callers)
	c := &caller{lot: random(option("seed", 1)*1000003 + int64(number))}
	*callers = append(*callers, c)
	return c
}

func startCallers() []*caller {
	var callers []*caller
	threads := load.producers
	if load.handoff {
		threads *= 2
	}
	load.filled.Add(int(threads))
	load.ended.Add(int(threads))
	load.quit.Add(int(threads))
	for i := int64(0); i < load.producers; i++ {
		c := newCaller(&callers)
		c.pairs = true
		if !load.handoff {
			go c.produce()
			continue
		}
		canceller := newCaller(&callers)
		c.ring = make(chan []*time.Timer, blocks)
		canceller.ring = c.ring
		go c.scheduleAll()
		go canceller.cancelAll()
	}
	return callers
}

// A probe's start, or 0, is written by the goroutine that it starts in.
type probe struct {
	due, started int64
}

func probeCount() int64 {
	tick := float64(load.tick) / float64(ms)
	free := load.seconds*1e3 - probeDelayMS - 2*tick
	if option("probe", 0) == 0 {
		return 0
	}
	must(free >= probeEveryMS, "finding time for a probe failed")
	return int64(free / probeEveryMS)
}

func runProbes(probes []probe) {
	for i := range probes {
		probe := &probes[i]
		probe.due = now() + probeDelayMS*ms
		time.AfterFunc(probeDelayMS*time.Millisecond, func() {
			atomic.StoreInt64(&probe.started, now())
		})
		sleepUntil(load.begun + probeEveryMS*ms*int64(i+1))
	}
}

func tellProbes(probes []probe, lagMax int64) {
	var late histogram
	for i := range probes {
		started := atomic.LoadInt64(&probes[i].started)
		if started != 0 {
			late.add(started - probes[i].due)
		}
	}
	late.printLate()
	print("lag_max_ms", "ms", float64(lagMax)/1e6)
	print("late_beyond_ms", "ms",
		float64(late.max-2*load.tick-lagMax)/1e6)
	print("early", "count", float64(late.early))
	print("lost", "count",
		float64(int64(len(probes))-late.count-late.early))
}

func readLoad() {
	load.producers = option("producers", 1)
	load.outstanding = option("outstanding", 1024)
	load.tick = option("tick_ms", 100) * ms
	load.pace = option("pace", 0)
	load.seconds = fraction("seconds", 1)
	load.mix = option("mix", 0) != 0
	load.random = option("random", 0) != 0
	load.handoff = option("handoff", 0) != 0
	must(load.producers > 0 && load.outstanding > 0, "options")
	load.begin = make(chan bool)
	load.over = make(chan bool)
}

type window struct {
	cpu, wall int64
	rss       float64
}

func measure(probes []probe) window {
	load.filled.Wait()
	sleepUntil(now() + 2*load.tick)
	control := newControl(len(probes) > 0)
	w := window{cpu: processCPU()}
	load.begun = now()
	close(load.begin)
	runProbes(probes)
	load.ended.Wait()
	w.wall = now() - load.begun
	sleepUntil(now() + 2*load.tick)
	w.cpu = processCPU() - w.cpu
	w.rss = rssMiB()
	lagMax, controlCPU := control.end()
	w.cpu -= controlCPU
	if len(probes) > 0 {
		tellProbes(probes, lagMax)
	}
	return w
}

func pair() {
	readLoad()
	callers := startCallers()
	w := measure(make([]probe, probeCount()))
	close(load.over)
	load.quit.Wait()
	var times histogram
	var pairs, refused int64
	for _, c := range callers {
		times.addAll(&c.times)
		refused += c.refused
		if c.pairs {
			pairs += c.calls
		}
	}
	// What has been started has its goroutine, which runs in a moment.
	sleepUntil(now() + 2*load.tick)
	started := atomic.LoadInt64(&ran)
	must(load.mix || started == 0, "what was not due has run")
	must(refused == started, "a stop failed, and the task did not run")
	print("cpu_ns", "ns", float64(w.cpu)/float64(pairs))
	print("wall_ns", "ns", float64(w.wall)/float64(pairs))
	times.printCalls("call")
	print("rss_mib", "MiB", w.rss)
	print("pairs_per_s", "1/s", float64(pairs)*1e9/float64(w.wall))
	print("ran", "count", float64(started))
}
