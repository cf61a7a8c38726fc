// SPDX-License-Identifier: Apache-2.0

//! What does a pair cost, schedule one timeout and cancel an old one? See
//! perf/pair.c, whose options these are. tokio's tick is a millisecond: the
//! option says how long to wait at both ends of the window.

use crate::common::*;
use crate::{schedule, Handle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BATCH: u64 = 512;
const BLOCK: usize = 256;
const BLOCKS: usize = 4;
const PROBE_EVERY: Duration = Duration::from_millis(50);
const PROBE_DELAY: Duration = Duration::from_millis(200);
const MIX_MS: [u64; 4] = [50, 250, 1000, 30000];

struct Ran(AtomicU64);

impl Wake for Ran {
	fn wake(self: Arc<Self>) {
		self.0.fetch_add(1, Ordering::Relaxed);
	}

	fn wake_by_ref(self: &Arc<Self>) {
		self.0.fetch_add(1, Ordering::Relaxed);
	}
}

struct Load {
	producers: u64,
	outstanding: usize,
	delay: Duration,
	settle: Duration,
	pairs: u64,
	pace: u64,
	seconds: f64,
	mix: bool,
	random: bool,
	handoff: bool,
	probes: u32,
	seed: u64,
	clock_cost: u64,
	ran: Arc<Ran>,
	begun: RwLock<Instant>,
	/// Twice for its begin and its end each.
	meet: Barrier,
}

impl Load {
	fn read(options: &Options) -> Load {
		let producers = options.number("producers", 1);
		let handoff = options.flag("handoff");
		let callers = producers * if handoff { 2 } else { 1 };
		let tick =
			Duration::from_millis(options.number("tick_ms", 100));
		let seconds = options.fraction("seconds", 1.0);
		let pairs = options.number("pairs", 0);
		let free = seconds
			- PROBE_DELAY.as_secs_f64()
			- 2.0 * tick.as_secs_f64();
		let probe = options.flag("probe");
		let probes = if probe {
			free / PROBE_EVERY.as_secs_f64()
		} else {
			0.0
		};
		must(
			!probe || (probes >= 1.0 && pairs == 0),
			"finding time for a probe failed",
		);
		Load {
			producers,
			outstanding: options.number("outstanding", 1024)
				as usize,
			delay: Duration::from_millis(
				options.number("delay_ms", 30000),
			),
			settle: 2 * tick,
			pairs,
			pace: options.number("pace", 0),
			seconds,
			mix: options.flag("mix"),
			random: options.flag("random"),
			handoff,
			probes: probes as u32,
			seed: options.number("seed", 1),
			clock_cost: clock_cost(),
			ran: Arc::new(Ran(AtomicU64::new(0))),
			begun: RwLock::new(Instant::now()),
			meet: Barrier::new(callers as usize + 1),
		}
	}
}

/// A thread that makes calls: both of a pair, or with handoff one of them.
struct Caller<'a> {
	load: &'a Load,
	waker: Waker,
	begun: Instant,
	table: Vec<Handle>,
	place: usize,
	calls: u64,
	/// Found to have run already.
	refused: u64,
	lot: Random,
	times: Histogram,
}

impl<'a> Caller<'a> {
	fn new(load: &'a Load, number: u64) -> Caller<'a> {
		Caller {
			load,
			waker: load.ran.clone().into(),
			begun: Instant::now(),
			table: Vec::with_capacity(load.outstanding),
			place: 0,
			calls: 0,
			refused: 0,
			lot: Random(load.seed * 1000003 + number),
			times: Histogram::new(),
		}
	}

	fn schedule(&mut self) -> Handle {
		let mut delay = self.load.delay;
		if self.load.mix {
			let which = (self.lot.next() >> 62) as usize;
			delay = Duration::from_millis(MIX_MS[which]);
		}
		schedule(&self.waker, delay)
	}

	fn next(&mut self) -> usize {
		if self.load.random {
			return self.lot.below(self.load.outstanding);
		}
		let place = self.place;
		self.place += 1;
		if self.place == self.load.outstanding {
			self.place = 0;
		}
		place
	}

	fn cancel(&mut self, handle: Handle) {
		self.refused += handle.is_elapsed() as u64;
		drop(handle);
	}

	fn replace(&mut self, by: Option<Handle>) {
		let place = self.next();
		let by = match by {
			Some(handle) => handle,
			None => self.schedule(),
		};
		let old = std::mem::replace(&mut self.table[place], by);
		self.cancel(old);
	}

	fn sampled<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
		self.calls += 1;
		if self.calls % SAMPLE_EVERY != 1 {
			return call(self);
		}
		let from = Instant::now();
		let result = call(self);
		let cost = self.load.clock_cost;
		self.times.add(ns(from.elapsed()).saturating_sub(cost));
		result
	}

	fn behind_pace(&self, now: Instant) -> u64 {
		let step = ns(now - self.begun) / MS + 1;
		let target =
			step * self.load.pace / (1000 * self.load.producers);
		if target > self.calls {
			return target - self.calls;
		}
		sleep_until(self.begun + Duration::from_nanos(step * MS));
		0
	}

	/// How many pairs come next; 0: the end.
	fn next_batch(&self) -> u64 {
		let mut batch = 0;
		while batch == 0 {
			let now = Instant::now();
			if (now - self.begun).as_secs_f64() >= self.load.seconds
			{
				return 0;
			}
			batch = BATCH;
			if self.load.pace > 0 {
				batch = self.behind_pace(now).min(BATCH);
			}
		}
		if self.load.pairs > 0 {
			batch = batch.min(self.load.pairs - self.calls);
		}
		batch
	}

	fn begin(&mut self) {
		self.load.meet.wait();
		self.calls = 0;
		self.times.clear();
		self.load.meet.wait();
		self.begun = *self.load.begun.read().unwrap();
	}

	fn end(&mut self) {
		self.load.meet.wait();
		self.load.meet.wait();
		for handle in std::mem::take(&mut self.table) {
			self.cancel(handle);
		}
	}

	fn produce(mut self) -> Caller<'a> {
		for _ in 0..self.load.outstanding {
			let handle = self.schedule();
			self.table.push(handle);
		}
		self.begin();
		loop {
			let batch = self.next_batch();
			if batch == 0 {
				break;
			}
			for _ in 0..batch {
				self.sampled(|caller| caller.replace(None));
			}
		}
		self.end();
		self
	}

	fn send(&mut self, count: u64, ring: &SyncSender<Vec<Handle>>) {
		let mut left = count as usize;
		while left > 0 {
			let part = left.min(BLOCK);
			let mut block = Vec::with_capacity(part);
			for _ in 0..part {
				let handle = self
					.sampled(|caller| caller.schedule());
				block.push(handle);
			}
			ring.send(block).unwrap();
			left -= part;
		}
	}

	fn schedule_all(mut self, ring: SyncSender<Vec<Handle>>) -> Caller<'a> {
		self.send(self.load.outstanding as u64, &ring);
		self.begin();
		loop {
			let batch = self.next_batch();
			if batch == 0 {
				break;
			}
			self.send(batch, &ring);
		}
		ring.send(Vec::new()).unwrap();
		self.end();
		self
	}

	fn cancel_all(mut self, ring: Receiver<Vec<Handle>>) -> Caller<'a> {
		while self.table.len() < self.load.outstanding {
			self.table.extend(ring.recv().unwrap());
		}
		self.begin();
		loop {
			let block = ring.recv().unwrap();
			if block.is_empty() {
				break;
			}
			for handle in block {
				self.sampled(|caller| {
					caller.replace(Some(handle))
				});
			}
		}
		/* The other has counted them. */
		self.calls = 0;
		self.end();
		self
	}
}

type Late = Arc<Mutex<Vec<i64>>>;

fn run_probes(load: &Load, runtime: &Runtime, begun: Instant) -> Late {
	let late = Late::default();
	for i in 0..load.probes {
		let late = late.clone();
		let due = Instant::now() + PROBE_DELAY;
		runtime.spawn(async move {
			tokio::time::sleep_until(due.into()).await;
			let now = Instant::now();
			let ns = ns(now.saturating_duration_since(due)) as i64
				- ns(due.saturating_duration_since(now)) as i64;
			late.lock().unwrap().push(ns);
		});
		sleep_until(begun + PROBE_EVERY * (i + 1));
	}
	late
}

fn tell_probes(load: &Load, late: &Late, lag_max: u64) {
	let late = late.lock().unwrap();
	let mut histogram = Histogram::new();
	for ns in late.iter().filter(|ns| **ns >= 0) {
		histogram.add(*ns as u64);
	}
	let bound = ns(load.settle) + lag_max;
	let beyond = histogram.max as f64 - bound as f64;
	let early = late.iter().filter(|ns| **ns < 0).count();
	let lost = load.probes as usize - late.len();
	histogram.print_late();
	print("lag_max_ms", "ms", lag_max as f64 / 1e6);
	print("late_beyond_ms", "ms", beyond / 1e6);
	print("early", "count", early as f64);
	print("lost", "count", lost as f64);
}

struct Window {
	cpu: u64,
	wall: u64,
	rss: f64,
}

fn measure(load: &Load, runtime: &Runtime) -> Window {
	load.meet.wait();
	thread::sleep(load.settle);
	let control = if load.probes > 0 {
		Some(Control::start())
	} else {
		None
	};
	let mut cpu = process_cpu();
	let begun = Instant::now();
	*load.begun.write().unwrap() = begun;
	load.meet.wait();
	let late = run_probes(load, runtime, begun);
	load.meet.wait();
	let wall = ns(begun.elapsed());
	thread::sleep(load.settle);
	cpu = process_cpu() - cpu;
	let rss = rss_mib();
	if let Some(control) = control {
		let (lag_max, control_cpu) = control.end();
		cpu -= control_cpu.min(cpu);
		tell_probes(load, &late, lag_max);
	}
	load.meet.wait();
	Window { cpu, wall, rss }
}

fn tell(window: &Window, callers: &[Caller], load: &Load) {
	let ran = load.ran.0.load(Ordering::Relaxed);
	let pairs: u64 = callers.iter().map(|caller| caller.calls).sum();
	let refused: u64 = callers.iter().map(|caller| caller.refused).sum();
	let mut times = Histogram::new();
	for caller in callers {
		times.add_all(&caller.times);
	}
	must(load.mix || ran == 0, "what was not due has run");
	/* One that becomes due while it is dropped has run, and not refused. */
	must(refused <= ran, "a timeout that was due has not run");
	print("cpu_ns", "ns", window.cpu as f64 / pairs as f64);
	print("wall_ns", "ns", window.wall as f64 / pairs as f64);
	times.print_calls();
	print("rss_mib", "MiB", window.rss);
	print(
		"pairs_per_s",
		"1/s",
		pairs as f64 * 1e9 / window.wall as f64,
	);
	print("ran", "count", ran as f64);
}

pub fn run(options: &Options, runtime: &Runtime) {
	let load = Load::read(options);
	must(load.producers > 0 && load.outstanding > 0, "options");
	let (load, handle) = (&load, runtime.handle());
	thread::scope(|scope| {
		let mut threads = Vec::new();
		for i in 0..load.producers {
			if !load.handoff {
				threads.push(scope.spawn(move || {
					let _entered = handle.enter();
					Caller::new(load, i).produce()
				}));
				continue;
			}
			let (sender, receiver) = sync_channel(BLOCKS);
			threads.push(scope.spawn(move || {
				let _entered = handle.enter();
				Caller::new(load, 2 * i).schedule_all(sender)
			}));
			threads.push(scope.spawn(move || {
				let _entered = handle.enter();
				Caller::new(load, 2 * i + 1)
					.cancel_all(receiver)
			}));
		}
		let window = measure(load, runtime);
		let join = |thread: thread::ScopedJoinHandle<'_, _>| {
			thread.join().unwrap()
		};
		let callers: Vec<_> = threads.into_iter().map(join).collect();
		thread::sleep(load.settle);
		tell(&window, &callers, load);
	});
}
