// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"sync/atomic"
	"time"
)

// Does every timeout of an ordinary life end as it should, and on time? See
// perf/life.c, whose options these are.

const (
	patience         = 1000 * ms
	minDelay         = 1e6
	cancelledPercent = 95
)

type lifeLoad struct {
	rate, tick, seconds, count int64
	maxDelay                   float64
	lots                       random
	begun, lastDue, twice      int64
	lives                      []oneLife
	scheduled                  int64
	// By steps since begun: the first to cancel.
	calendar []*oneLife
}

type oneLife struct {
	timer *time.Timer
	due   int64
	// 0: not yet.
	started   int64
	next      *oneLife
	cancelled bool
}

// fraction is in [0, 1).
func (l *lifeLoad) fraction() float64 {
	return float64(l.lots.next()>>11) * 0x1p-53
}

func (l *lifeLoad) tell(life *oneLife) {
	if atomic.SwapInt64(&life.started, now()) != 0 {
		atomic.AddInt64(&l.twice, 1)
	}
}

func (l *lifeLoad) schedule(step int64) {
	life := &l.lives[l.scheduled]
	l.scheduled++
	begun := now()
	delay := int64(minDelay * math.Pow(l.maxDelay/minDelay, l.fraction()))
	life.due = begun + delay
	if life.due > l.lastDue {
		l.lastDue = life.due
	}
	life.timer = time.AfterFunc(time.Duration(delay),
		func() { l.tell(life) })
	if l.fraction()*100 >= cancelledPercent {
		return
	}
	then := begun + int64(l.fraction()*float64(delay))
	then = (then - l.begun) / ms
	if then < step {
		then = step
	}
	life.next = l.calendar[then]
	l.calendar[then] = life
}

func (l *lifeLoad) runStep(step int64) {
	target := (step + 1) * l.rate / 1000
	for l.scheduled < l.count && l.scheduled < target {
		l.schedule(step)
	}
	if step < int64(len(l.calendar)) {
		for life := l.calendar[step]; life != nil; life = life.next {
			life.cancelled = life.timer.Stop()
		}
	}
	sleepUntil(l.begun + (step+1)*ms)
}

func (l *lifeLoad) judge() (late histogram, lost, ranCancelled, cancels int64) {
	for i := range l.lives {
		life := &l.lives[i]
		started := atomic.LoadInt64(&life.started)
		switch {
		case life.cancelled:
			cancels++
			if started != 0 {
				ranCancelled++
			}
		case started == 0:
			lost++
		default:
			late.add(started - life.due)
		}
	}
	return late, lost, ranCancelled, cancels
}

func (l *lifeLoad) tellOutcomes(lagMax int64) {
	must(atomic.LoadInt64(&l.twice) == 0, "one has run twice")
	late, lost, ranCancelled, cancels := l.judge()
	tick := float64(l.tick)
	print("early", "count", float64(late.early))
	print("lost", "count", float64(lost))
	print("ran_cancelled", "count", float64(ranCancelled))
	print("late_p50_ticks", "ticks", float64(late.quantile(500))/tick)
	print("late_p99_ticks", "ticks", float64(late.quantile(990))/tick)
	print("late_max_ticks", "ticks", float64(late.max)/tick)
	late.printLate()
	print("lag_max_ms", "ms", float64(lagMax)/1e6)
	print("cancelled_percent", "%", 100*float64(cancels)/float64(l.count))
	print("started", "count", float64(late.count+late.early))
}

func (l *lifeLoad) run() {
	control := newControl(true)
	l.begun = now()
	cpu := processCPU()
	step := int64(0)
	for ; l.scheduled < l.count; step++ {
		l.runStep(step)
	}
	cpu = processCPU() - cpu
	wall := now() - l.begun
	lagMax, controlCPU := control.end()
	cpu -= controlCPU
	control = newControl(true)
	for end := l.lastDue + 2*l.tick + patience; now() < end; step++ {
		l.runStep(step)
	}
	restMax, _ := control.end()
	if restMax > lagMax {
		lagMax = restMax
	}
	print("cpu_ns", "ns", float64(cpu)/float64(l.count))
	print("cpu_ms_per_s", "ms", 1e3*float64(cpu)/float64(wall))
	l.tellOutcomes(lagMax)
}

func life() {
	l := &lifeLoad{
		rate:     option("rate", 50000),
		tick:     option("tick_ms", 100) * ms,
		seconds:  option("seconds", 10),
		maxDelay: 1e6 * fraction("max_delay_ms", 60000),
		lots:     random(option("seed", 1))}
	must(l.rate > 0 && l.seconds > 0 && minDelay <= l.maxDelay &&
		l.maxDelay < 1e15, "options")
	l.count = l.rate * l.seconds
	l.lives = make([]oneLife, l.count)
	l.calendar = make([]*oneLife,
		(2*l.seconds+10)*1000+int64(l.maxDelay)/ms)
	l.run()
}
