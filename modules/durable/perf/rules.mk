# SPDX-License-Identifier: Apache-2.0
#
# The module beside what people would take instead, and a billion tasks a day;
# read by ../rules.mk.

durable_perf := build/plain/modules/durable/perf
durable_hosted := build/plain/hwtd build/plain/hwt.so
durable_load_libs_load-redis := -lhiredis
durable_load_libs_load-postgresql := -lpq
$(durable_perf)/postgresql.o: own = -isystem /usr/include/postgresql
$(durable_perf)/load-%: $(durable_perf)/load.o $(durable_perf)/%.o
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_load_libs_$(@F)) -lm $(libs)

# The engines of Node, from its registry.
$(durable_perf)/node_modules:
	$(call say,NPM)
	$(Q)npm install --silent --no-save --prefix $(@D) \
		bullmq@6.7.0 ioredis@6.0.0 graphile-worker@0.17.3 || true

.PHONY: perf-durable
perf-durable: $(durable_perf)/load-redis $(durable_perf)/load-postgresql \
		$(durable_hosted) $(durable_perf)/node_modules
	$(Q)python3 -B modules/durable/perf/main.py $(PERF)

# HOURS may be a fraction.
.PHONY: billion
billion: $(durable_perf)/load-redis $(durable_hosted)
	$(Q)python3 -B modules/durable/perf/billion.py \
		$(if $(HOURS),--hours $(HOURS)) $(BILLION)
