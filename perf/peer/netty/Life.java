/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Does every timeout of an ordinary life end as it should, and on time? See
 * perf/life.c, whose options these are.
 */
final class Life extends Netty {
	private static final byte CANCELLED = 1;
	private static final double MIN_DELAY = 1e6, CANCELLED_PERCENT = 95;

	private final HashedWheelTimer timer;
	private final long rate, tickMs;
	private final double maxDelay;
	private final int count;
	private final Random lots;
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
		rate = option("rate", 50_000);
		maxDelay = 1e6 * maxDelayMs;
		must(rate > 0 && seconds > 0 && tickMs > 0 &&
		    MIN_DELAY <= maxDelay && maxDelay < 1e15 &&
		    rate * seconds < Integer.MAX_VALUE / 2, "options");
		count = (int)(rate * seconds);
		lots = new Random(option("seed", 1));
		handles = new Timeout[count];
		due = new long[count];
		started = new AtomicLongArray(count);
		next = new int[count];
		outcome = new byte[count];
		calendar = new int[(int)((2 * seconds + 10) * 1000 +
		    maxDelay / MS)];
	}

	/** In [0, 1). */
	private double fraction() {
		return (lots.next() >>> 11) * 0x1p-53;
	}

	private int step(long now) {
		return (int)((now - begun) / MS);
	}

	private void tell(int life) {
		if (started.getAndSet(life, now()) != 0)
			startedTwice.incrementAndGet();
	}

	private void schedule(int step) {
		int life = scheduled++;
		long now = now();
		long delay = (long)(MIN_DELAY *
		    Math.pow(maxDelay / MIN_DELAY, fraction()));

		due[life] = now + delay;
		lastDue = Math.max(lastDue, due[life]);
		handles[life] = timer.newTimeout(timeout -> tell(life), delay,
		    TimeUnit.NANOSECONDS);
		if (fraction() * 100 >= CANCELLED_PERCENT)
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
		sleepUntil(begun + (step + 1) * MS);
	}

	/** Gives the first step after the last. */
	private int runScheduling() {
		int step = 0;

		begun = now();
		for (; scheduled < count; step++)
			runStep(step);
		return step;
	}

	private void runRest(int step) {
		long end = lastDue + 2 * tickMs * MS + SECOND;

		while (now() < end)
			runStep(step++);
		settle(timer, tickMs);
	}

	private void tellOutcomes(long lagMax) {
		Histogram late = new Histogram();
		long lost = 0, ranCancelled = 0, cancels = 0;
		double tick = tickMs * 1e6;

		must(startedTwice.get() == 0, "one has run twice");
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
		print("early", "count", late.early());
		print("lost", "count", lost);
		print("ran_cancelled", "count", ranCancelled);
		print("late_p50_ticks", "ticks", late.quantile(0.5) / tick);
		print("late_p99_ticks", "ticks", late.quantile(0.99) / tick);
		print("late_max_ticks", "ticks", late.max() / tick);
		late.printLate();
		print("lag_max_ms", "ms", lagMax / 1e6);
		print("cancelled_percent", "%", 100.0 * cancels / count);
		print("started", "count", late.count() + late.early());
	}

	private void run() {
		Control control = new Control();
		Window window = new Window();
		Share worker = new Share("wheel");
		long controlCpu = control.cpu();
		int step = runScheduling();

		window.endWall();
		window.end();
		controlCpu = control.cpu() - controlCpu;
		worker.end();
		runRest(step);
		long all = window.cpu - controlCpu;

		print("cpu_ns", "ns", (double)all / count);
		print("cpu_ms_per_s", "ms", 1e3 * all / window.wall);
		print("worker_cpu_percent", "%", worker.percent(window.wall));
		print("wakeups", "1/s", worker.wakeups(window.wall));
		tellOutcomes(control.end());
	}

	public static void main(String[] arguments) {
		begin(arguments);
		long tickMs = option("tick_ms", 100);
		HashedWheelTimer timer = create(tickMs, 512);
		/* A short one, for the compiler. */
		Life warm = new Life(timer, tickMs, 2, 500);

		warm.runRest(warm.runScheduling());
		Life life = new Life(timer, tickMs,
		    option("seconds", 10), fraction("max_delay_ms", "60000"));

		System.gc();
		life.run();
		timer.stop();
	}
}
