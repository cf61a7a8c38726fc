/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What does a pair cost, schedule one timeout and cancel the oldest, when
 * nothing, or with mixed delays almost nothing, is ever due? See perf/pair.c,
 * whose options these are.
 */
final class Pair extends Netty {
	/** Pairs from one look at the clock to the next. */
	private static final int BATCH = 512;
	private static final int PROBE_EVERY_MS = 50, PROBE_DELAY_MS = 200;
	private static final long[] MIX = {50, 250, 1_000, 30_000};

	private static HashedWheelTimer timer;
	private static int producers, outstanding;
	private static long tickMs, pace;
	private static double seconds;
	private static boolean mixed, random, handoff;
	private static CyclicBarrier barrier;
	private static long begun;
	private static final AtomicLong ran = new AtomicLong();

	/** All timeouts share a task: Netty at its best. */
	private static final TimerTask TASK =
	    (Timeout timeout) -> ran.incrementAndGet();

	/** Handles on their way from one thread to another, in blocks. An empty
	 * one ends it. */
	private static final int BLOCK = 256, BLOCKS = 4;

	private static Timeout[] receive(BlockingQueue<Timeout[]> ring) {
		try {
			return ring.take();
		} catch (InterruptedException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** A thread that makes calls: both of a pair, or one of them. */
	private abstract static class Caller extends Thread {
		final Timeout[] table = new Timeout[outstanding];
		final Histogram times = new Histogram();
		final Random lot;
		private int place;
		long calls, refused;

		Caller(int number) {
			super("caller-" + number);
			lot = new Random(
			    option("seed", 1) * 1_000_003 + number);
		}

		/** Until the end of the window. */
		abstract void work();

		abstract void fill();

		final long delay() {
			return mixed ? MIX[(int)(lot.next() >>> 62)] : 30_000;
		}

		final int next() {
			if (random)
				return lot.below(outstanding);
			int now = place;

			place = now + 1 == outstanding ? 0 : now + 1;
			return now;
		}

		final Timeout schedule() {
			return timer.newTimeout(
			    TASK, delay(), TimeUnit.MILLISECONDS);
		}

		final void replace(Timeout by) {
			int at = next();

			if (!table[at].cancel())
				refused++;
			table[at] = by != null ? by : schedule();
		}

		/** 0: the call is not one of those that are timed. */
		final long beginCall() {
			return calls++ % SAMPLE_EVERY == 0 ? now() : 0;
		}

		final void endCall(long from) {
			if (from != 0)
				times.addCall(from);
		}

		private int behindPace(long now) {
			long step = (now - begun) / MS + 1;
			long target = step * pace / (1000 * producers);

			if (target > calls)
				return (int)Math.min(BATCH, target - calls);
			sleepUntil(begun + step * MS);
			return 0;
		}

		/** How many pairs come next; 0: the end. */
		final int nextBatch() {
			int batch = 0;

			while (batch == 0) {
				long now = now();

				if (now - begun >= seconds * 1e9)
					return 0;
				batch = pace > 0 ? behindPace(now) : BATCH;
			}
			return batch;
		}

		@Override
		public final void run() {
			fill();
			for (int i = 0; i < 2; i++) {
				meet(barrier);
				calls = 0;
				times.clear();
				meet(barrier);
				work();
				meet(barrier);
			}
			meet(barrier);
			endAll();
		}

		void endAll() {
			for (Timeout timeout : table)
				if (!timeout.cancel())
					refused++;
		}
	}

	/** Makes pairs. */
	private static final class Producer extends Caller {
		Producer(int number) {
			super(number);
		}

		@Override
		void fill() {
			for (int i = 0; i < outstanding; i++)
				table[i] = schedule();
		}

		private void makePairs(int count) {
			for (; count > 0; count--) {
				long from = beginCall();

				replace(null);
				endCall(from);
			}
		}

		@Override
		void work() {
			int batch;

			while ((batch = nextBatch()) > 0)
				makePairs(batch);
		}
	}

	/** Schedules, and sends the handles to a canceller. */
	private static final class Scheduler extends Caller {
		private final BlockingQueue<Timeout[]> ring;

		Scheduler(int number, BlockingQueue<Timeout[]> ring) {
			super(number);
			this.ring = ring;
		}

		private void sendBlock(int count) {
			Timeout[] block = new Timeout[count];

			for (int i = 0; i < count; i++) {
				long from = beginCall();

				block[i] = schedule();
				endCall(from);
			}
			try {
				ring.put(block);
			} catch (InterruptedException trouble) {
				throw new IllegalStateException(trouble);
			}
		}

		private void send(int count) {
			for (; count > 0; count -= BLOCK)
				sendBlock(Math.min(count, BLOCK));
		}

		@Override
		void fill() {
			send(outstanding);
		}

		@Override
		void work() {
			int batch;

			while ((batch = nextBatch()) > 0)
				send(batch);
			sendBlock(0);
		}

		@Override
		void endAll() {
		}
	}

	/** Cancels what a scheduler has sent, that of long ago. */
	private static final class Canceller extends Caller {
		private final BlockingQueue<Timeout[]> ring;

		Canceller(int number, BlockingQueue<Timeout[]> ring) {
			super(number);
			this.ring = ring;
		}

		@Override
		void fill() {
			for (int i = 0; i < outstanding;)
				for (Timeout timeout : receive(ring))
					table[i++] = timeout;
		}

		@Override
		void work() {
			Timeout[] block;

			while ((block = receive(ring)).length > 0)
				for (Timeout timeout : block) {
					long from = beginCall();

					replace(timeout);
					endCall(from);
				}
		}
	}

	/** So many that the last is due before the producers end. */
	private static int probeCount() {
		double ms = seconds * 1e3 - PROBE_DELAY_MS - 2 * tickMs;

		if (!flag("probe"))
			return 0;
		must(ms >= PROBE_EVERY_MS, "finding time for a probe failed");
		return (int)(ms / PROBE_EVERY_MS);
	}

	private static void runProbes(int count, Histogram late) {
		for (int i = 0; i < count; i++) {
			long due = now() + PROBE_DELAY_MS * MS;

			timer.newTimeout(timeout -> late.add(now() - due),
			    PROBE_DELAY_MS, TimeUnit.MILLISECONDS);
			sleepUntil(begun + PROBE_EVERY_MS * MS * (i + 1));
		}
	}

	private static void tellProbes(int count, Histogram late, long lagMax) {
		double beyond = late.max() - 2 * tickMs * 1e6 - lagMax;

		late.printLate();
		print("lag_max_ms", "ms", lagMax / 1e6);
		print("late_beyond_ms", "ms", beyond / 1e6);
		print("early", "count", late.early());
		print("lost", "count", count - late.count() - late.early());
	}

	private static void readOptions() {
		producers = (int)option("producers", 1);
		outstanding = (int)option("outstanding", 1024);
		tickMs = option("tick_ms", 100);
		mixed = flag("mix");
		random = flag("random");
		handoff = flag("handoff");
		must(producers > 0 && outstanding > 0 && tickMs > 0, "options");
	}

	private static List<Caller> callers() {
		List<Caller> callers = new ArrayList<>();

		for (int i = 0; i < producers; i++) {
			if (!handoff) {
				callers.add(new Producer(i));
				continue;
			}
			BlockingQueue<Timeout[]> ring =
			    new ArrayBlockingQueue<>(BLOCKS);

			callers.add(new Scheduler(2 * i, ring));
			callers.add(new Canceller(2 * i + 1, ring));
		}
		barrier = new CyclicBarrier(callers.size() + 1);
		return callers;
	}

	private static void start(List<Caller> callers) {
		for (Caller caller : callers)
			caller.start();
		for (int i = 0; i < callers.size(); i++)
			pin(callers.get(i), i, callers.size());
	}

	/** The same as will be measured, at a pace with which the worker keeps
	 * up. */
	private static void warmUp() {
		pace = 1_000_000;
		seconds = 1.5;
		meet(barrier);
		begun = now();
		meet(barrier);
		meet(barrier);
		meet(barrier);
		settle(timer, tickMs);
		seconds = fraction("seconds", "1");
		pace = option("pace", 0);
		System.gc();
	}

	/** From the first pair to the end of the last one's consequences. */
	private static Window measure(Histogram late) {
		int probes = probeCount();
		Control control = probes > 0 ? new Control() : null;
		Window window = new Window();
		long controlCpu = control == null ? 0 : control.cpu();

		begun = now();
		meet(barrier);
		runProbes(probes, late);
		meet(barrier);
		window.endWall();
		settle(timer, tickMs);
		window.end();
		if (control == null)
			return window;
		window.cpu -= control.cpu() - controlCpu;
		tellProbes(probes, late, control.end());
		return window;
	}

	/** A cancel fails when the task has been started, and only then. */
	private static void judgeOutcomes(long refused) {
		settle(timer, tickMs);
		must(mixed || ran.get() == 0, "what was not due has run");
		must(refused == ran.get(), refused +
		    " cancels failed, " + ran.get() + " timeouts have run");
	}

	public static void main(String[] arguments) {
		begin(arguments);
		readOptions();
		timer = create(tickMs, 512);
		List<Caller> callers = callers();

		start(callers);
		warmUp();
		Window window = measure(new Histogram());
		double rss = rssMib();
		Histogram times = new Histogram();
		long done = 0, refused = 0;

		meet(barrier);
		for (Caller caller : callers) {
			await(caller);
			times.addAll(caller.times);
			refused += caller.refused;
			if (!(caller instanceof Canceller))
				done += caller.calls;
		}
		judgeOutcomes(refused);
		window.tell(done);
		times.printCalls("call");
		print("rss_mib", "MiB", rss);
		print("pairs_per_s", "1/s", done * 1e9 / window.wall);
		print("ran", "count", ran.get());
		print("collections", "count", window.collections);
		timer.stop();
	}
}
