/* SPDX-License-Identifier: Apache-2.0 */
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.time.Duration;
import javax.sql.DataSource;
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/**
 * What a turn costs in a pool of connections, and how long one waits for it:
 * see modules/checkout/perf/main.c, whose options these are, with any=1.
 *
 * HikariCP and commons-pool2 as they come, of fixed size, with connections that
 * do nothing; nothing is checked before use but what HikariCP does by itself.
 * Each thread has turns before it measures, without holds, until the compiler
 * has done its work. cpu_ns is that of the threads that take turns: collector
 * and compiler are left out, which is in favour of these pools.
 *
 * Who would call it unfair: who has them in a program in Java, as that cannot
 * use the others. HikariCP wraps each connection, and knows of transactions and
 * of statements that were left open; an object of commons-pool2 has a state and
 * times of its own. Debian's HikariCP 2.7.9 is of 2018.
 */
final class Pools extends Common {
	private static final String NAME = System.getProperty("pool");
	private static final long WARM = 2 * SECOND;
	private static Pool pool;
	private static volatile boolean over;

	/** Takes one, holds it for so long, and returns it; answers when it
	 * was there. */
	private interface Pool {
		long turn(long holdNs) throws Exception;
	}

	private static void hold(long ns) {
		if (ns > 0)
			sleepUntil(System.nanoTime() + ns);
	}

	/** A thing of JDBC that does nothing. */
	private static <T> T idle(Class<T> type) {
		InvocationHandler handler = (self, method, arguments) -> {
			Class<?> of = method.getReturnType();

			switch (method.getName()) {
			case "getConnection":
				return idle(Connection.class);
			case "hashCode":
				return System.identityHashCode(self);
			case "isValid":
			case "getAutoCommit":
				return true;
			}
			if (of == boolean.class)
				return false;
			return of == int.class ? (Object)0 : null;
		};

		return type.cast(Proxy.newProxyInstance(
		    Pools.class.getClassLoader(), new Class<?>[] {type},
		    handler));
	}

	/** It lives as long as the program. */
	@SuppressWarnings("resource")
	private static Pool hikari(int size) {
		HikariConfig config = new HikariConfig();

		config.setDataSource(idle(DataSource.class));
		config.setMaximumPoolSize(size);
		config.setConnectionTimeout(600_000);
		HikariDataSource source = new HikariDataSource(config);

		return holdNs -> {
			try (Connection taken = source.getConnection()) {
				long granted = System.nanoTime();

				hold(holdNs);
				return taken != null ? granted : 0;
			}
		};
	}

	private static final class Factory extends
	    BasePooledObjectFactory<Object> {
		@Override
		public Object create() {
			return new Object();
		}

		@Override
		public PooledObject<Object> wrap(Object made) {
			return new DefaultPooledObject<>(made);
		}
	}

	@SuppressWarnings("resource")
	private static Pool commons(int size, boolean fair) {
		GenericObjectPoolConfig<Object> config =
		    new GenericObjectPoolConfig<>();

		config.setMaxTotal(size);
		config.setMaxIdle(size);
		config.setMaxWait(Duration.ofSeconds(600));
		config.setFairness(fair);
		config.setJmxEnabled(false);
		GenericObjectPool<Object> objects =
		    new GenericObjectPool<>(new Factory(), config);

		return holdNs -> {
			Object taken = objects.borrowObject();
			long granted = System.nanoTime();

			hold(holdNs);
			objects.returnObject(taken);
			return granted;
		};
	}

	private static final class Worker extends Thread {
		private final Random random;
		private final Histogram waits = new Histogram();
		private long turns, cpu;

		Worker(int number) {
			random = new Random(option("seed", 1) + number);
		}

		private boolean isTail() {
			return Long.remainderUnsigned(random.next(), 100) == 0;
		}

		private void turns(long sleep, long tail) {
			while (!over) {
				long ns = tail > 0 && isTail() ? tail : sleep;
				long begun = System.nanoTime();
				long granted = turn(ns);

				waits.add(Math.max(0, granted - begun));
				turns++;
			}
		}

		private long turn(long ns) {
			try {
				return pool.turn(ns);
			} catch (Exception trouble) {
				throw new IllegalStateException(trouble);
			}
		}

		@Override
		public void run() {
			ThreadMXBean bean =
			    ManagementFactory.getThreadMXBean();

			turns(option("sleep_ns", 0), option("tail_ns", 0));
			cpu = bean.getCurrentThreadCpuTime();
		}
	}

	private static void warm() throws Exception {
		long end = System.nanoTime() + WARM;
		Thread[] threads = new Thread[(int)option("threads", 2)];

		for (int i = 0; i < threads.length; i++) {
			Worker worker = new Worker(i);

			threads[i] = new Thread(() -> worker.turns(0, 0));
			threads[i].start();
		}
		Thread.sleep((end - System.nanoTime()) / 1_000_000);
		over = true;
		for (Thread each : threads)
			await(each);
		over = false;
		System.gc();
	}

	private static String version() {
		Class<?> of = NAME.equals("hikaricp")
		    ? HikariDataSource.class : GenericObjectPool.class;

		return NAME + " of " + of.getProtectionDomain().getCodeSource()
		    .getLocation().getPath();
	}

	private static void measure() throws InterruptedException {
		Worker[] workers = new Worker[(int)option("threads", 2)];
		Histogram waits = new Histogram();
		long begun = System.nanoTime(), turns = 0, cpu = 0;

		for (int i = 0; i < workers.length; i++) {
			workers[i] = new Worker(i);
			workers[i].start();
		}
		Thread.sleep(option("seconds", 1) * 1000);
		over = true;
		for (Worker each : workers) {
			await(each);
			turns += each.turns;
			cpu += each.cpu;
			waits.addAll(each.waits);
		}
		print("cpu_ns", "ns", (double)cpu / turns);
		print("ops_per_s", "/s",
		    turns * 1e9 / (System.nanoTime() - begun));
		print("wait_p50_ns", "ns", waits.quantile(0.5));
		print("wait_p99_ns", "ns", waits.quantile(0.99));
		print("wait_p9999_ns", "ns", waits.quantile(0.9999));
		print("wait_max_ns", "ns", waits.max());
	}

	public static void main(String[] arguments) throws Exception {
		begin(arguments, version());
		if (option("any", 0) == 0)
			cannot(NAME + ": any=1 alone");
		int size = (int)option("objects", 256);

		pool = NAME.equals("hikaricp")
		    ? hikari(size) : commons(size, NAME.equals("pool2_fair"));
		warm();
		measure();
		System.exit(0);
	}
}
