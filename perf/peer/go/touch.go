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
	strays              int64
	lock                sync.Mutex
	// How late the silent ones started, under the lock.
	late histogram
}

type toucher struct {
	lot  random
	done int64
}

func (c *connections) tell(due int64) {
	late := now() - due
	c.lock.Lock()
	c.late.add(late)
	c.lock.Unlock()
}

func (c *connections) fired() int64 {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.late.count + c.late.early
}

func (c *connections) silent() int64 {
	return int64(len(c.timers)) - c.live
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
		due := now() + c.limit
		c.timers[place] = time.AfterFunc(time.Duration(c.limit),
			func() { c.tell(due) })
	}
}

func (c *connections) touch(place int64) {
	if !c.timers[place].Reset(time.Duration(c.limit)) {
		must(false, "a reset failed")
	}
}

func (t *toucher) window(c *connections, touches, until int64) {
	for t.done = 0; t.done < touches && now() < until; {
		t.done += touchBatch
		for i := 0; i < touchBatch; i++ {
			c.touch(t.lot.below(c.live))
		}
	}
}

// together is a window of all goroutines; it gives the touches.
func (c *connections) together(touchers []toucher, touches, until int64) (
	done, cpu, wall int64) {
	var ended sync.WaitGroup
	ended.Add(len(touchers))
	cpu = processCPU()
	wall = now()
	for i := range touchers {
		t := &touchers[i]
		go func() {
			t.window(c, touches, until)
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
	c.together(touchers, touches/4, c.filled+eighth)
	done, cpu, wall := c.together(touchers, touches, c.filled+3*eighth)
	print("cpu_ns", "ns", float64(cpu)/float64(done))
	print("wall_ns", "ns", float64(wall)/float64(done))
}

// keepAlive touches the live ones in time until the silent ones have been told
// of, or should have been for long.
func (c *connections) keepAlive() {
	begun, touched := now(), c.filled
	end := begun + c.limit + 2*option("tick_ms", 100)*ms + 2000*ms
	for c.fired() < c.silent() && begun < end {
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
	lost := c.silent() - c.fired()
	c.late.printLate()
	print("early", "count", float64(c.late.early))
	print("lost", "count", float64(lost))
}

func touch() {
	count := option("connections", 100000)
	threads := option("threads", 1)
	must(count >= silentOf && count < stridePrime && threads > 0, "options")
	c := &connections{live: count - count/silentOf,
		limit:  option("limit_ms", 60000) * ms,
		timers: make([]*time.Timer, count)}
	c.fill()
	c.measure(option("touches", 4000000), threads)
	if option("fire", 1) != 0 {
		c.keepAlive()
		c.reportSilent()
	}
	print("strays", "count", float64(atomic.LoadInt64(&c.strays)))
}
