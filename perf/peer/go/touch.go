// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// What does it cost to push out the idle limit of a connection, one at random
// of so many, by Timer.Reset? See perf/touch.c, whose options these are. Reset
// may be called by several goroutines at once.

const (
	silentOf    = 100
	touchBatch  = 1024
	stridePrime = 1000000007
)

type connections struct {
	timers              []*time.Timer
	live, limit, filled int64
	fired, strays       int64
	// When each silent one started, after its deadline; 0: not yet.
	late []int64
	due  []int64
}

type toucher struct {
	lot   random
	done  int64
	calls histogram
}

// tell is called once for each silent one; a start at its very deadline counts
// as one a nanosecond later.
func (c *connections) tell(silent int64) {
	late := now() - c.due[silent]
	if late == 0 {
		late = 1
	}
	atomic.StoreInt64(&c.late[silent], late)
	atomic.AddInt64(&c.fired, 1)
}

func (c *connections) alive() {
	atomic.AddInt64(&c.strays, 1)
}

func (c *connections) fill() {
	c.filled = now()
	count := int64(len(c.timers))
	for i := int64(0); i < count; i++ {
		place := i * stridePrime % count
		if place < c.live {
			c.timers[place] =
				time.AfterFunc(time.Duration(c.limit), c.alive)
			continue
		}
		silent := place - c.live
		c.due[silent] = now() + c.limit
		c.timers[place] = time.AfterFunc(time.Duration(c.limit),
			func() { c.tell(silent) })
	}
}

func (c *connections) touch(place int64) {
	if !c.timers[place].Reset(time.Duration(c.limit)) {
		must(false, "a reset failed")
	}
}

func (t *toucher) window(c *connections, touches, until int64, timed bool) {
	for t.done = 0; t.done < touches && now() < until; {
		t.done += touchBatch
		for i := 0; i < touchBatch; i++ {
			place := t.lot.below(c.live)
			if !timed || i%sampleEvery != 0 {
				c.touch(place)
				continue
			}
			from := now()
			c.touch(place)
			t.calls.addCall(from)
		}
	}
}

// together is a window of all goroutines; it gives the touches.
func (c *connections) together(
	touchers []toucher, touches, until int64, timed bool) (
	done, cpu, wall int64) {
	var ended sync.WaitGroup
	ended.Add(len(touchers))
	cpu = processCPU()
	wall = now()
	for i := range touchers {
		t := &touchers[i]
		go func() {
			t.window(c, touches, until, timed)
			ended.Done()
		}()
	}
	ended.Wait()
	cpu = processCPU() - cpu
	wall = now() - wall
	for i := range touchers {
		done += touchers[i].done
	}
	must(done > 0, "limit_ms is too short")
	return done, cpu, wall
}

func (c *connections) measure(touches, threads int64) {
	touchers := make([]toucher, threads)
	for i := range touchers {
		touchers[i].lot = random(option("seed", 1)*1000 + int64(i))
	}
	eighth := c.limit / 8
	c.together(touchers, touches/4, c.filled+eighth, false)
	done, cpu, wall :=
		c.together(touchers, touches, c.filled+3*eighth, false)
	print("cpu_ns", "ns", float64(cpu)/float64(done))
	print("wall_ns", "ns", float64(wall)/float64(done))
	c.together(touchers, touches/4, c.filled+4*eighth, true)
	for i := range touchers[1:] {
		touchers[0].calls.addAll(&touchers[i+1].calls)
	}
	touchers[0].calls.printCalls("call")
}

// keepAlive touches the live ones in time until the silent ones have been told
// of, or should have been for long.
func (c *connections) keepAlive() {
	begun, touched := now(), c.filled
	end := begun + c.limit + 2*option("tick_ms", 100)*ms + 2000*ms
	silent := int64(len(c.late))
	for atomic.LoadInt64(&c.fired) < silent && begun < end {
		for place := int64(0); place < c.live; place++ {
			c.touch(place)
		}
		must(now()-touched < c.limit,
			"limit_ms is too short to touch all in time")
		touched = begun
		begun += c.limit / 4
		sleepUntil(begun)
	}
}

func (c *connections) reportSilent() {
	var late histogram
	lost := 0
	for i := range c.late {
		ns := atomic.LoadInt64(&c.late[i])
		if ns == 0 {
			lost++
		} else {
			late.add(ns)
		}
	}
	late.printLate()
	print("early", "count", float64(late.early))
	print("lost", "count", float64(lost))
}

func touch() {
	count := option("connections", 100000)
	threads := option("threads", 1)
	must(count >= silentOf && count < stridePrime && threads > 0, "options")
	silent := count / silentOf
	c := &connections{live: count - silent,
		limit:  option("limit_ms", 60000) * ms,
		timers: make([]*time.Timer, count),
		late:   make([]int64, silent), due: make([]int64, silent)}
	rss := rssMiB()
	c.fill()
	print("rss_mib", "MiB", rssMiB()-rss)
	c.measure(option("touches", 4000000), threads)
	if option("fire", 1) != 0 {
		c.keepAlive()
		c.reportSilent()
	}
	print("strays", "count", float64(atomic.LoadInt64(&c.strays)))
}
