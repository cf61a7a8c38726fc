// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// What does a pair cost, time.AfterFunc and the Stop of an old one? See
// perf/pair.c, whose options these are, but for handoff, probe and aged. There
// are no ticks: the option is taken, and says how long to wait at both ends of
// the window.

const (
	batchMost   = 512
	sampleEvery = 64
)

var mixMS = [4]int64{50, 250, 1000, 30000}

var load struct {
	producers, outstanding, tick, pace int64
	seconds                            float64
	mix, random                        bool
	begun                              int64
	begin, over                        chan bool
	filled, ended, quit                sync.WaitGroup
	ran                                int64
}

func count() {
	atomic.AddInt64(&load.ran, 1)
}

// A producer is a goroutine that makes pairs.
type producer struct {
	table                 []*time.Timer
	place, calls, refused int64
	lot                   random
	times                 histogram
}

func (p *producer) schedule() *time.Timer {
	delay := 30000 * ms
	if load.mix {
		delay = mixMS[p.lot.next()>>62] * ms
	}
	return time.AfterFunc(time.Duration(delay), count)
}

func (p *producer) next() int64 {
	if load.random {
		return p.lot.below(load.outstanding)
	}
	place := p.place
	p.place++
	if p.place == load.outstanding {
		p.place = 0
	}
	return place
}

func (p *producer) replace() {
	place := &p.table[p.next()]
	if !(*place).Stop() {
		p.refused++
	}
	*place = p.schedule()
}

func (p *producer) makePairs(count int64) {
	for ; count > 0; count-- {
		p.calls++
		if p.calls%sampleEvery != 1 {
			p.replace()
			continue
		}
		from := now()
		p.replace()
		p.times.addCall(from)
	}
}

func (p *producer) behindPace(now int64) int64 {
	step := (now-load.begun)/ms + 1
	target := step * load.pace / (1000 * load.producers)
	if target > p.calls {
		return target - p.calls
	}
	sleepUntil(load.begun + step*ms)
	return 0
}

// nextBatch says how many pairs come next; 0: the end.
func (p *producer) nextBatch() int64 {
	batch := int64(0)
	for batch == 0 {
		now := now()
		if float64(now-load.begun) >= load.seconds*1e9 {
			return 0
		}
		batch = batchMost
		if load.pace > 0 {
			batch = p.behindPace(now)
		}
	}
	if batch > batchMost {
		return batchMost
	}
	return batch
}

func (p *producer) run() {
	p.table = make([]*time.Timer, load.outstanding)
	for i := range p.table {
		p.table[i] = p.schedule()
	}
	load.filled.Done()
	<-load.begin
	for n := p.nextBatch(); n > 0; n = p.nextBatch() {
		p.makePairs(n)
	}
	load.ended.Done()
	<-load.over
	for _, timer := range p.table {
		if !timer.Stop() {
			p.refused++
		}
	}
	load.quit.Done()
}

func startProducers() []*producer {
	all := make([]*producer, load.producers)
	load.filled.Add(len(all))
	load.ended.Add(len(all))
	load.quit.Add(len(all))
	for i := range all {
		seed := option("seed", 1)*1000003 + int64(i)
		all[i] = &producer{lot: random(seed)}
		go all[i].run()
	}
	return all
}

func readLoad() {
	load.producers = option("producers", 1)
	load.outstanding = option("outstanding", 1024)
	load.tick = option("tick_ms", 100) * ms
	load.pace = option("pace", 0)
	load.seconds = fraction("seconds", 1)
	load.mix = option("mix", 0) != 0
	load.random = option("random", 0) != 0
	must(load.producers > 0 && load.outstanding > 0, "options")
	for _, name := range []string{"handoff", "probe", "aged"} {
		if option(name, 0) != 0 {
			fmt.Fprintln(os.Stderr, "Go is measured without", name)
			os.Exit(77)
		}
	}
	load.begin = make(chan bool)
	load.over = make(chan bool)
}

func pair() {
	readLoad()
	all := startProducers()
	load.filled.Wait()
	sleepUntil(now() + 2*load.tick)
	cpu := processCPU()
	load.begun = now()
	close(load.begin)
	load.ended.Wait()
	wall := now() - load.begun
	sleepUntil(now() + 2*load.tick)
	cpu = processCPU() - cpu
	close(load.over)
	load.quit.Wait()
	var times histogram
	var pairs, refused int64
	for _, p := range all {
		times.addAll(&p.times)
		refused += p.refused
		pairs += p.calls
	}
	// What has been started has its goroutine, which runs in a moment.
	sleepUntil(now() + 2*load.tick)
	started := atomic.LoadInt64(&load.ran)
	must(load.mix || started == 0, "what was not due has run")
	must(refused == started, "a stop failed, and the task did not run")
	print("cpu_ns", "ns", float64(cpu)/float64(pairs))
	print("wall_ns", "ns", float64(wall)/float64(pairs))
	times.printCalls("call")
	print("pairs_per_s", "1/s", float64(pairs)*1e9/float64(wall))
	print("ran", "count", float64(started))
}
