/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Does every timeout of an ordinary life end as it should, and on time? See
 * perf/life.c, whose options these are.
 */
public final class Life {
	private static final long PATIENCE = Common.SECOND;
	private static final byte CANCELLED = 1;

	private final HashedWheelTimer timer;
	private final long rate, tickMs;
	private final double cancelled, minDelay, maxDelay;
	private final int count;
	private final Common.Random lots;
	private int scheduled;
	private long begun, lastDue;

	private final Timeout[] handles;
	private final long[] due;
	/** 0: not yet. */
	private final AtomicLongArray started;
	private final AtomicLong startedTwice = new AtomicLong();
	/** In the calendar: the next of the same step, counted from 1. */
	private final int[] next, calendar;
	private final byte[] outcome;

	private Life(HashedWheelTimer timer, long tickMs, long seconds,
	    double maxDelayMs) {
		this.timer = timer;
		this.tickMs = tickMs;
		rate = Common.option("rate", 50_000);
		cancelled = Common.option("cancelled", 95);
		minDelay = 1e6 * Double.parseDouble(
		    Common.option("min_delay_ms", "1"));
		maxDelay = 1e6 * maxDelayMs;
		Common.must(rate > 0 && seconds > 0 && tickMs > 0 &&
		    minDelay >= 1 && minDelay <= maxDelay &&
		    maxDelay < 1e15 && rate * seconds < Integer.MAX_VALUE / 2,
		    "options");
		count = (int)(rate * seconds);
		lots = new Common.Random(Common.option("seed", 1));
		handles = new Timeout[count];
		due = new long[count];
		started = new AtomicLongArray(count);
		next = new int[count];
		outcome = new byte[count];
		calendar = new int[(int)((2 * seconds + 10) * 1000 +
		    maxDelay / Common.MS)];
	}

	/** In [0, 1). */
	private double fraction() {
		return (lots.next() >>> 11) * 0x1p-53;
	}

	private int step(long now) {
		return (int)((now - begun) / Common.MS);
	}

	private void tell(int life) {
		if (started.getAndSet(life, Common.now()) != 0)
			startedTwice.incrementAndGet();
	}

	private void schedule(int step) {
		int life = scheduled++;
		long now = Common.now();
		long delay = (long)(minDelay *
		    Math.pow(maxDelay / minDelay, fraction()));

		due[life] = now + delay;
		lastDue = Math.max(lastDue, due[life]);
		handles[life] = timer.newTimeout(timeout -> tell(life), delay,
		    TimeUnit.NANOSECONDS);
		if (fraction() * 100 >= cancelled)
			return;
		int then = Math.max(
		    step, step(now + (long)(fraction() * delay)));

		next[life] = calendar[then];
		calendar[then] = life + 1;
	}

	private void cancelStep(int step) {
		for (int at = calendar[step]; at > 0; at = next[at - 1]) {
			if (handles[at - 1].cancel())
				outcome[at - 1] = CANCELLED;
			handles[at - 1] = null;
		}
	}

	private void runStep(int step) {
		long target = (step + 1) * rate / 1000;

		while (scheduled < count && scheduled < target)
			schedule(step);
		if (step < calendar.length)
			cancelStep(step);
		Common.sleepUntil(begun + (step + 1) * Common.MS);
	}

	/** Gives the first step after the last. */
	private int runScheduling() {
		int step = 0;

		begun = Common.now();
		for (; scheduled < count; step++)
			runStep(step);
		return step;
	}

	private void runRest(int step) {
		long end = lastDue + 2 * tickMs * Common.MS + PATIENCE;

		while (Common.now() < end)
			runStep(step++);
		Common.settle(timer, tickMs);
	}

	private void tellOutcomes(long lagMax) {
		Common.Histogram late = new Common.Histogram();
		long lost = 0, ranCancelled = 0, cancels = 0;
		double tick = tickMs * 1e6;

		Common.must(startedTwice.get() == 0, "one has run twice");
		for (int life = 0; life < count; life++) {
			long start = started.get(life);

			if (outcome[life] == CANCELLED) {
				cancels++;
				ranCancelled += start != 0 ? 1 : 0;
			} else if (start == 0) {
				lost++;
			} else {
				late.add(start - due[life]);
			}
		}
		Common.print("early", "count", late.early());
		Common.print("lost", "count", lost);
		Common.print("ran_cancelled", "count", ranCancelled);
		Common.print("late_p50_ticks", "ticks",
		    late.quantile(500) / tick);
		Common.print("late_p99_ticks", "ticks",
		    late.quantile(990) / tick);
		Common.print("late_max_ticks", "ticks", late.max() / tick);
		late.printLate();
		Common.print("lag_max_ms", "ms", lagMax / 1e6);
		Common.print("cancelled_percent", "%", 100.0 * cancels / count);
		Common.print("started", "count", late.count() + late.early());
	}

	private void run() {
		Path worker = Common.task("wheel");
		Common.Control control = new Common.Control();
		Common.Window window = new Common.Window();
		long cpu = Common.threadCpu(worker);
		long sleeps = Common.sleeps(worker);
		long controlCpu = control.cpu();
		int step = runScheduling();

		window.endWall();
		window.end();
		controlCpu = control.cpu() - controlCpu;
		cpu = Common.threadCpu(worker) - cpu;
		sleeps = Common.sleeps(worker) - sleeps;
		runRest(step);
		long all = window.cpu - controlCpu;

		Common.print("cpu_ns", "ns", (double)all / count);
		Common.print("cpu_ms_per_s", "ms", 1e3 * all / window.wall);
		Common.print("worker_cpu_percent", "%",
		    100.0 * cpu / window.wall);
		Common.print("wakeups", "1/s", 1e9 * sleeps / window.wall);
		tellOutcomes(control.end());
	}

	public static void main(String[] arguments) {
		Common.begin(arguments);
		long tickMs = Common.option("tick_ms", 100);
		HashedWheelTimer timer = Common.create(tickMs, 512);
		/* A short one, for the compiler. */
		Life warm = new Life(timer, tickMs, 2, 500);

		warm.runRest(warm.runScheduling());
		Life life = new Life(timer, tickMs,
		    Common.option("seconds", 10), Double.parseDouble(
		    Common.option("max_delay_ms", "60000")));

		System.gc();
		life.run();
		timer.stop();
	}
}
