/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * What does it cost to push out the idle limit of a connection, one at random
 * of so many? Netty has no call for it, so that one cancels and makes another.
 * See perf/touch.c, whose options these are, and:
 *
 *   owed=1  the window ends when the worker has taken over what was scheduled
 *           in it, at most 100,000 in a tick; 0: with the last call
 */
public final class Touch {
	private static final int SILENT_OF = 100, SAMPLE_EVERY = 64;
	private static final int BATCH = 1024, PATIENCE_S = 30;
	private static final long STRIDE_PRIME = 1_000_000_007;

	private static HashedWheelTimer timer;
	private static int connections, live, threads;
	private static long limitMs, tickMs, filled;
	/** A thread takes a handle out while it touches the connection. */
	private static AtomicReferenceArray<Timeout> handles;
	private static CyclicBarrier barrier;
	private static final AtomicLong strays = new AtomicLong();
	private static final Common.Histogram late = new Common.Histogram();
	private static volatile long fired;

	private static final TimerTask ALIVE =
	    (Timeout timeout) -> strays.incrementAndGet();

	private Touch() {
	}

	/** Of the worker alone. */
	private static void tell(long due) {
		late.add(Common.now() - due);
		fired = late.count() + late.early();
	}

	private static Timeout schedule(TimerTask task) {
		return timer.newTimeout(task, limitMs, TimeUnit.MILLISECONDS);
	}

	/** The last ones of the table are silent. */
	private static void fill() {
		filled = Common.now();
		for (long i = 0; i < connections; i++) {
			int place = (int)(i * STRIDE_PRIME % connections);
			long due = Common.now() + limitMs * Common.MS;

			handles.setPlain(place, schedule(place < live
				? ALIVE : timeout -> tell(due)));
		}
	}

	private static boolean touch(int place) {
		Timeout timeout;

		if (threads > 1)
			timeout = handles.getAndSet(place, null);
		else
			timeout = handles.getPlain(place);
		if (timeout == null)
			return true;
		boolean done = timeout.cancel();

		timeout = schedule(ALIVE);
		if (threads > 1)
			handles.setRelease(place, timeout);
		else
			handles.setPlain(place, timeout);
		return done;
	}

	private static void meet() {
		try {
			barrier.await();
		} catch (InterruptedException |
		    BrokenBarrierException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	private static final class Toucher extends Thread {
		private final Common.Random lot;
		final Common.Histogram calls = new Common.Histogram();
		private final long[] touches, until;
		long done;
		private boolean well = true;

		/** As many in each of three windows, of which the last is
		 * timed. */
		Toucher(int number, long[] touches, long[] until) {
			super("toucher-" + number);
			lot = new Common.Random(
			    Common.option("seed", 1) * 1000 + number);
			this.touches = touches;
			this.until = until;
		}

		private void batch(int count) {
			for (int i = 0; i < count; i++)
				well &= touch(lot.below(live));
		}

		private void timedBatch() {
			for (int i = 0; i < BATCH / SAMPLE_EVERY; i++) {
				batch(SAMPLE_EVERY - 1);
				int place = lot.below(live);
				long from = Common.now();

				well &= touch(place);
				calls.addCall(from);
			}
		}

		private void window(int number) {
			for (done = 0; done < touches[number] &&
			     Common.now() < until[number]; done += BATCH)
				if (number == 2)
					timedBatch();
				else
					batch(BATCH);
		}

		@Override
		public void run() {
			for (int i = 0; i < 3; i++) {
				meet();
				window(i);
				meet();
				meet();
			}
			Common.must(well, "a cancel failed");
		}
	}

	private static Toucher[] start(long touches) {
		long eighth = limitMs * Common.MS / 8;
		long[] counts = {touches / 4, touches, touches / 4};
		long[] until = {filled + eighth, filled + 3 * eighth,
		    filled + 4 * eighth};
		Toucher[] touchers = new Toucher[threads];
		int processors = Runtime.getRuntime().availableProcessors();

		barrier = new CyclicBarrier(threads + 1);
		for (int i = 0; i < threads; i++) {
			touchers[i] = new Toucher(i, counts, until);
			touchers[i].start();
			if (threads > 1 && threads <= processors)
				Common.pin(touchers[i].getName(), i);
		}
		return touchers;
	}

	private static void measure() {
		boolean owed = Common.option("owed", 1) != 0;
		Toucher[] touchers = start(
		    Common.option("touches", 4_000_000));

		for (int i = 0; i < 3; i++) {
			long done = 0;

			Common.settle(timer, tickMs);
			Common.Window window = new Common.Window();

			meet();
			meet();
			window.endWall();
			if (owed)
				Common.settle(timer, tickMs);
			window.end();
			for (Toucher toucher : touchers)
				done += toucher.done;
			meet();
			Common.must(done > 0, "limit_ms is too short");
			if (i != 1)
				continue;
			window.print(done);
			Common.print("collections", "count",
			    window.collections);
		}
		for (int i = 0; i < threads; i++) {
			Common.join(touchers[i]);
			if (i > 0)
				touchers[0].calls.addAll(touchers[i].calls);
		}
		touchers[0].calls.printCalls("call");
	}

	private static void sweep() {
		boolean done = true;

		for (int place = 0; place < live; place++)
			done &= touch(place);
		Common.must(done, "a cancel failed");
	}

	/** Touches the live ones in time until the silent ones have been told
	 * of, or should have been for long. */
	private static void keepAlive() {
		long silent = connections - live, limit = limitMs * Common.MS;
		long begun = Common.now(), touched = filled;
		long end = begun + limit + 2 * tickMs * Common.MS +
		    PATIENCE_S * Common.SECOND;

		do {
			sweep();
			Common.must(Common.now() - touched < limit,
			    "limit_ms is too short to touch all in time");
			touched = begun;
			begun += limit / 4;
			Common.sleepUntil(begun);
		} while (fired < silent && begun < end);
	}

	private static void reportSilent() {
		long lost = connections - live - fired;

		late.printLate();
		Common.print("early", "count", late.early());
		Common.print("lost", "count", lost);
	}

	public static void main(String[] arguments) {
		Common.begin(arguments);
		connections = (int)Common.option("connections", 100_000);
		limitMs = Common.option("limit_ms", 60_000);
		tickMs = Common.option("tick_ms", 100);
		threads = (int)Common.option("threads", 1);
		Common.must(connections >= SILENT_OF && threads > 0 &&
		    connections < STRIDE_PRIME, "options");
		if (Common.option("huge", 0) != 0)
			Common.cannot("huge=1: its heap is the collector's");
		live = connections - connections / SILENT_OF;
		handles = new AtomicReferenceArray<>(connections);
		timer = Common.create(tickMs, 512);
		fill();
		Common.settle(timer, tickMs);
		Common.print("rss_mib", "MiB", Common.rssMib());
		measure();
		if (Common.option("fire", 1) != 0) {
			keepAlive();
			reportSilent();
		}
		Common.print("strays", "count", strays.get());
		timer.stop();
	}
}
