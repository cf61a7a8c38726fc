// SPDX-License-Identifier: Apache-2.0

//! What the workloads share: options given as name=value, results as lines
//! "name unit value", clocks, histograms, and the control thread.
//!
//! Who would call it unfair: who has a newer tokio than Debian's 1.24. A timer
//! is a Sleep in its own allocation, reset where it can be, in a release build
//! with LTO; tokio's users have it inside a future, without that allocation.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub const MS: u64 = 1_000_000;
pub const SAMPLE_EVERY: u64 = 64;
const PARTS_LOG: u32 = 6;
const PARTS: u64 = 1 << PARTS_LOG;

pub fn must(condition: bool, what: &str) {
	if !condition {
		eprintln!("tokio: {}", what);
		std::process::exit(2);
	}
}

pub fn cannot(why: &str) {
	eprintln!("tokio: {}", why);
	std::process::exit(77);
}

pub struct Options(HashMap<String, f64>);

impl Options {
	pub fn read(arguments: impl Iterator<Item = String>) -> Options {
		let mut options = HashMap::new();
		for argument in arguments {
			let (name, value) =
				argument.split_once('=').unwrap_or(("", ""));
			let value = value.parse();
			must(
				value.is_ok(),
				&format!("bad option: {}", argument),
			);
			options.insert(name.to_string(), value.unwrap());
		}
		Options(options)
	}

	pub fn fraction(&self, name: &str, otherwise: f64) -> f64 {
		*self.0.get(name).unwrap_or(&otherwise)
	}

	pub fn number(&self, name: &str, otherwise: u64) -> u64 {
		self.fraction(name, otherwise as f64) as u64
	}

	pub fn flag(&self, name: &str) -> bool {
		self.number(name, 0) != 0
	}
}

pub fn print(name: &str, unit: &str, value: f64) {
	println!("{} {} {}", name, unit, value);
}

#[repr(C)]
struct Rusage {
	user: [i64; 2],
	system: [i64; 2],
	rest: [i64; 14],
}

extern "C" {
	fn getrusage(who: i32, usage: *mut Rusage) -> i32;
}

fn cpu(who: i32) -> u64 {
	let mut usage = Rusage {
		user: [0; 2],
		system: [0; 2],
		rest: [0; 14],
	};
	must(
		unsafe { getrusage(who, &mut usage) } == 0,
		"getrusage failed",
	);
	let seconds = usage.user[0] + usage.system[0];
	(seconds * 1_000_000_000 + (usage.user[1] + usage.system[1]) * 1000)
		as u64
}

/// User and system time of all threads.
pub fn process_cpu() -> u64 {
	cpu(0)
}

fn thread_cpu() -> u64 {
	cpu(1)
}

pub fn rss_mib() -> f64 {
	let text = fs::read_to_string("/proc/self/statm").unwrap();
	let pages = text.split(' ').nth(1).unwrap().parse::<f64>().unwrap();
	pages * 4096.0 / 1048576.0
}

pub fn ns(duration: Duration) -> u64 {
	duration.as_nanos() as u64
}

pub fn sleep_until(until: Instant) {
	loop {
		let left = until.saturating_duration_since(Instant::now());
		if left.is_zero() {
			return;
		}
		thread::sleep(left);
	}
}

/// What two readings of the clock cost that follow each other.
pub fn clock_cost() -> u64 {
	let mut costs = vec![0; 10001];
	for cost in costs.iter_mut() {
		let from = Instant::now();
		*cost = ns(from.elapsed());
	}
	costs.sort_unstable();
	costs[costs.len() / 2]
}

/// SplitMix64, as the programs in C have it.
pub struct Random(pub u64);

impl Random {
	pub fn next(&mut self) -> u64 {
		self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
		let mut x = self.0;
		x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
		x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
		x ^ (x >> 31)
	}

	pub fn below(&mut self, end: usize) -> usize {
		(((self.next() >> 32) * end as u64) >> 32) as usize
	}
}

/// A power of two is divided into 64 parts: figures are at most 1.6 % too
/// large.
pub struct Histogram {
	cell: Vec<u64>,
	pub count: u64,
	pub max: u64,
}

impl Histogram {
	pub fn new() -> Histogram {
		Histogram {
			cell: vec![
				0;
				((65 - PARTS_LOG) as usize) * PARTS as usize
			],
			count: 0,
			max: 0,
		}
	}

	/// The pages too are there afterwards.
	pub fn clear(&mut self) {
		self.cell.iter_mut().for_each(|cell| *cell = 0);
		self.count = 0;
		self.max = 0;
	}

	pub fn add(&mut self, ns: u64) {
		let mut at = ns;
		if ns >= PARTS {
			let log = 63 - ns.leading_zeros() - PARTS_LOG;
			at = ((log as u64) << PARTS_LOG) + (ns >> log);
		}
		self.cell[at as usize] += 1;
		self.count += 1;
		self.max = self.max.max(ns);
	}

	pub fn add_all(&mut self, other: &Histogram) {
		for (cell, count) in self.cell.iter_mut().zip(&other.cell) {
			*cell += count;
		}
		self.count += other.count;
		self.max = self.max.max(other.max);
	}

	fn upper(at: u64) -> u64 {
		if at < 2 * PARTS {
			return at;
		}
		let log = (at >> PARTS_LOG) - 1;
		((at - (log << PARTS_LOG) + 1) << log) - 1
	}

	/// What so many of a thousand do not exceed.
	pub fn quantile(&self, permille: u64) -> u64 {
		let rank = (self.count * permille + 999) / 1000;
		let mut seen = 0;
		for (at, count) in self.cell.iter().enumerate() {
			seen += count;
			if seen >= rank && seen > 0 {
				return self
					.max
					.min(Histogram::upper(at as u64));
			}
		}
		self.max
	}

	pub fn print_calls(&self) {
		print("call_p50_ns", "ns", self.quantile(500) as f64);
		print("call_p99_ns", "ns", self.quantile(990) as f64);
		print("call_p999_ns", "ns", self.quantile(999) as f64);
		print("call_max_ns", "ns", self.max as f64);
	}

	pub fn print_late(&self) {
		print("late_p50_ms", "ms", self.quantile(500) as f64 / 1e6);
		print("late_p99_ms", "ms", self.quantile(990) as f64 / 1e6);
		print("late_max_ms", "ms", self.max as f64 / 1e6);
	}
}

/// Does nothing but sleep from one millisecond to the next: what it comes too
/// late the machine itself took away.
pub struct Control {
	quit: Arc<AtomicBool>,
	thread: thread::JoinHandle<(u64, u64)>,
}

impl Control {
	pub fn start() -> Control {
		let quit = Arc::new(AtomicBool::new(false));
		let asked = quit.clone();
		let thread = thread::spawn(move || Control::run(&asked));
		Control { quit, thread }
	}

	fn run(quit: &AtomicBool) -> (u64, u64) {
		let mut step = Instant::now();
		let mut lag_max = Duration::ZERO;
		while !quit.load(Ordering::Relaxed) {
			step += Duration::from_nanos(MS);
			sleep_until(step);
			let lag = step.elapsed();
			lag_max = lag_max.max(lag);
			if lag > Duration::from_nanos(MS) {
				step += lag;
			}
		}
		(ns(lag_max), thread_cpu())
	}

	/// Gives the largest lag, and what the thread itself took.
	pub fn end(self) -> (u64, u64) {
		self.quit.store(true, Ordering::Relaxed);
		self.thread.join().unwrap()
	}
}
