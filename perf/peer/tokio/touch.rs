// SPDX-License-Identifier: Apache-2.0

//! What does it cost to push out the idle limit of a connection, one at random
//! of so many, by Sleep::reset? See perf/touch.c, whose options these are.

use crate::common::*;
use crate::{schedule, Handle};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::Sleep;

const SILENT_OF: usize = 100;
const BATCH: u64 = 1024;
const STRIDE_PRIME: u64 = 1000000007;

/// What a connection is woken for.
struct Idle {
	/// None: it is alive, and should not be.
	due: Option<Instant>,
	/// 0: not yet; otherwise one more than that, or u64::MAX when early.
	late: AtomicU64,
	fired: Arc<AtomicU64>,
	strays: Arc<AtomicU64>,
}

impl Wake for Idle {
	fn wake(self: Arc<Self>) {
		let now = Instant::now();
		match self.due {
			None => {
				self.strays.fetch_add(1, Ordering::SeqCst);
				return;
			}
			Some(due) if now < due => {
				self.late.store(u64::MAX, Ordering::SeqCst)
			}
			Some(due) => self
				.late
				.store(ns(now - due) + 1, Ordering::SeqCst),
		}
		self.fired.fetch_add(1, Ordering::SeqCst);
	}
}

struct Table {
	/// A thread takes one out while it touches the connection.
	handles: Vec<AtomicPtr<Sleep>>,
	live: usize,
	shared: bool,
	limit: Duration,
	filled: Instant,
	silent: Vec<Arc<Idle>>,
	fired: Arc<AtomicU64>,
	strays: Arc<AtomicU64>,
	clock_cost: u64,
}

fn into_pointer(handle: Handle) -> *mut Sleep {
	/* It stays where it is: only a Pin is made of the pointer. */
	Box::into_raw(unsafe { Pin::into_inner_unchecked(handle) })
}

impl Table {
	fn fill(options: &Options) -> Table {
		let count = options.number("connections", 100000) as usize;
		must(
			count >= SILENT_OF && (count as u64) < STRIDE_PRIME,
			"options",
		);
		let limit = Duration::from_millis(
			options.number("limit_ms", 60000),
		);
		let mut table = Table {
			handles: (0..count)
				.map(|_| AtomicPtr::default())
				.collect(),
			live: count - count / SILENT_OF,
			shared: options.number("threads", 1) > 1,
			limit,
			filled: Instant::now(),
			silent: Vec::new(),
			fired: Arc::default(),
			strays: Arc::default(),
			clock_cost: clock_cost(),
		};
		let alive = table.idle(None);
		for i in 0..count as u64 {
			let place = (i * STRIDE_PRIME % count as u64) as usize;
			let mut waker: Waker = alive.clone().into();
			if place >= table.live {
				let idle = table
					.idle(Some(Instant::now() + limit));
				table.silent.push(idle.clone());
				waker = idle.into();
			}
			let handle = schedule(&waker, limit);
			table.handles[place]
				.store(into_pointer(handle), Ordering::Relaxed);
		}
		table
	}

	fn idle(&self, due: Option<Instant>) -> Arc<Idle> {
		Arc::new(Idle {
			due,
			late: AtomicU64::new(0),
			fired: self.fired.clone(),
			strays: self.strays.clone(),
		})
	}

	fn touch(&self, place: usize) -> bool {
		let handle = &self.handles[place];
		let sleep = if self.shared {
			handle.swap(ptr::null_mut(), Ordering::Acquire)
		} else {
			handle.load(Ordering::Relaxed)
		};
		if sleep.is_null() {
			return true;
		}
		/* Nobody else has it, and its box has not moved. */
		let pinned = unsafe { Pin::new_unchecked(&mut *sleep) };
		let pending = !pinned.is_elapsed();
		pinned.reset(tokio::time::Instant::now() + self.limit);
		if self.shared {
			handle.store(sleep, Ordering::Release);
		}
		pending
	}

	fn sweep(&self) {
		let mut well = true;
		for place in 0..self.live {
			well &= self.touch(place);
		}
		must(well, "a reset came too late");
	}

	/// Touches the live ones in time until the silent ones have been told
	/// of, or should have been for long.
	fn keep_alive(&self) {
		let mut begun = Instant::now();
		let mut touched = self.filled;
		let end = begun + self.limit + Duration::from_secs(3);
		let silent = self.silent.len() as u64;
		while self.fired.load(Ordering::SeqCst) < silent && begun < end
		{
			self.sweep();
			must(
				touched.elapsed() < self.limit,
				"limit_ms is too short to touch all in time",
			);
			touched = begun;
			begun += self.limit / 4;
			sleep_until(begun);
		}
	}

	fn report_silent(&self) {
		let (mut early, mut lost) = (0, 0);
		let mut late = Histogram::new();
		for idle in &self.silent {
			match idle.late.load(Ordering::SeqCst) {
				0 => lost += 1,
				u64::MAX => early += 1,
				ns => late.add(ns - 1),
			}
		}
		late.print_late();
		print("early", "count", early as f64);
		print("lost", "count", lost as f64);
	}
}

impl Drop for Table {
	fn drop(&mut self) {
		for handle in &self.handles {
			drop(unsafe {
				Box::from_raw(handle.load(Ordering::Acquire))
			});
		}
	}
}

struct Toucher {
	lot: Random,
	calls: Histogram,
}

impl Toucher {
	fn window(
		&mut self,
		table: &Table,
		touches: u64,
		until: Instant,
		timed: bool,
	) -> u64 {
		let mut well = true;
		let mut done = 0;
		while done < touches && Instant::now() < until {
			for i in 0..BATCH {
				let place = self.lot.below(table.live);
				if !timed || i % SAMPLE_EVERY != 0 {
					well &= table.touch(place);
					continue;
				}
				let from = Instant::now();
				well &= table.touch(place);
				let cost = table.clock_cost;
				self.calls
					.add(ns(from.elapsed())
						.saturating_sub(cost));
			}
			done += BATCH;
		}
		must(well, "a reset came too late");
		done
	}
}

struct Window {
	done: u64,
	cpu: u64,
	wall: u64,
}

/// A window of all threads.
fn together(
	table: &Table,
	runtime: &Runtime,
	touchers: &mut [Toucher],
	touches: u64,
	eighths: u32,
	timed: bool,
) -> Window {
	let until = table.filled + table.limit / 8 * eighths;
	let cpu = process_cpu();
	let begun = Instant::now();
	let done = thread::scope(|scope| {
		let mut threads = Vec::new();
		for toucher in touchers {
			threads.push(scope.spawn(move || {
				let _entered = runtime.enter();
				toucher.window(table, touches, until, timed)
			}));
		}
		threads.into_iter()
			.map(|thread| thread.join().unwrap())
			.sum()
	});
	must(done > 0, "limit_ms is too short");
	Window {
		done,
		cpu: process_cpu() - cpu,
		wall: ns(begun.elapsed()),
	}
}

fn measure(table: &Table, runtime: &Runtime, options: &Options) {
	let touches = options.number("touches", 4000000);
	let seed = options.number("seed", 1);
	let mut touchers: Vec<_> = (0..options.number("threads", 1))
		.map(|number| Toucher {
			lot: Random(seed * 1000 + number),
			calls: Histogram::new(),
		})
		.collect();
	together(table, runtime, &mut touchers, touches / 4, 1, false);
	let window = together(table, runtime, &mut touchers, touches, 3, false);
	print("cpu_ns", "ns", window.cpu as f64 / window.done as f64);
	print("wall_ns", "ns", window.wall as f64 / window.done as f64);
	together(table, runtime, &mut touchers, touches / 4, 4, true);
	let mut calls = Histogram::new();
	for toucher in &touchers {
		calls.add_all(&toucher.calls);
	}
	calls.print_calls();
}

pub fn run(options: &Options, runtime: &Runtime) {
	let _entered = runtime.enter();
	if options.flag("huge") {
		cannot("huge=1: not made here");
	}
	let rss = rss_mib();
	let table = Table::fill(options);
	print("rss_mib", "MiB", rss_mib() - rss);
	measure(&table, runtime, options);
	if options.number("fire", 1) != 0 {
		table.keep_alive();
		table.report_silent();
	}
	let strays = table.strays.load(Ordering::SeqCst);
	print("strays", "count", strays as f64);
}
