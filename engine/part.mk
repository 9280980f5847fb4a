# The engine: an expert cache under llama.cpp. Its program and most of its tests need llama.cpp (recorder/part.mk). What needs neither that nor
# ggml's headers is part of the library.
LLAMA_DEPS ?= build/deps

uninstall: uninstall-engine
uninstall-engine:
	rm -f $(BINDIR)/gatemass-engine $(DESTDIR)$(PREFIX)/lib/libgatemass-engine.so
	rm -rf $(DESTDIR)$(PREFIX)/include/gatemass
.PHONY: install-engine uninstall-engine

ifneq ($(LLAMA),no)
include $(wildcard $(LLAMA_DEPS)/llama/llama.mk)
endif

ifdef LLAMA_LIBS

ENGINE_PLUGIN   := $(wildcard engine/plugin*.c)
EMULATE_PARTS   := $(filter-out emulate/main.c,$(wildcard emulate/*.c))
RECORDER_PARTS  := $(filter-out recorder/main.c,$(wildcard recorder/*.c))
ENGINE_TESTS    := $(patsubst tests/llama/%.c,$(BUILD)/tests/llama/%,$(wildcard tests/llama/test_engine*.c))

$(call object,$(ENGINE_PLUGIN)): CPPFLAGS += $(LLAMA_CPPFLAGS)

BINARIES += $(BUILD)/bin/engine
all: $(BUILD)/bin/engine
test-programs: $(BUILD)/bin/engine
$(BUILD)/bin/engine: $(BUILD)/obj/engine/main.o $(call object,$(ENGINE_PLUGIN) $(EMULATE_PARTS) $(RECORDER_PARTS)) $(LIBRARY)
	$(link) $(LLAMA_LIBS) -lpthread $(LDLIBS)

# Linked by recorder/part.mk as all tests in tests/llama are; this is what they need besides.
$(ENGINE_TESTS): $(call object,$(ENGINE_PLUGIN) $(EMULATE_PARTS) tests/llama/emulate_support.c tests/llama/engine_support.c)

$(BUILD)/tests/llama/test_engine_device $(BUILD)/tests/llama/test_engine_bench: $(call object,tests/llama/fake_gpu.c) $(BUILD)/tests/libfakecudart.so
$(call object,tests/llama/test_engine_host.c): CPPFLAGS += $(LLAMA_CPPFLAGS)

# Each by itself, so that `make -k soak` goes on when one fails, and one after the other, since they measure times.
SOAK_ENGINE := soak-engine-memory soak-engine-predict soak-engine-disk soak-engine-host-limit
soak: $(SOAK_ENGINE)
soak-engine-memory: $(BUILD)/tests/llama/test_engine_memory
	GM_SOAK=1 $<
soak-engine-predict soak-engine-disk soak-engine-host-limit: $(addprefix $(BUILD)/bin/,engine emulate sim) $(BUILD)/tinymoe-4096.gguf
soak-engine-predict:
	BUILD=$(BUILD) MODEL=$(PADDED) sh scripts/engine-predict.sh --link-gb-s 3
soak-engine-disk:
	BUILD=$(BUILD) MODEL=$(PADDED) LIMIT=20 ROUNDS=3 sh scripts/engine-predict.sh --link-gb-s 3 --experts read --host-experts 1200MB --disk-latency-us 8000
soak-engine-host-limit:
	BUILD=$(BUILD) MODEL=$(PADDED) sh scripts/host-limit.sh
.PHONY: $(SOAK_ENGINE)

# --- the engine for other programs: all of it in a library that shows engine/engine.h alone ---

ENGINE_LIBRARY  := $(BUILD)/lib/libgatemass-engine.so
shared_object    = $(patsubst %.c,$(BUILD)/pic/%.o,$(1))
ENGINE_SHARED   := $(call shared_object,$(ENGINE_PLUGIN) $(filter engine/%,$(LIB_SOURCES)) $(EMULATE_PARTS) $(RECORDER_PARTS))
ENGINE_ARCHIVE  := $(BUILD)/pic/libgatemass.a

$(ENGINE_ARCHIVE): $(call shared_object,$(filter-out report/% engine/%,$(LIB_SOURCES)))
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D) && echo "cc   $< (shared)"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fPIC -MMD -MP -c -o $@ $<
$(call shared_object,$(ENGINE_PLUGIN) $(wildcard recorder/hook*.c)): CPPFLAGS += $(LLAMA_CPPFLAGS)
$(BUILD)/pic/sim/profile.o: CPPFLAGS += -DGM_SOURCE_DIR='"$(CURDIR)"'
-include $(shell [ -d $(BUILD)/pic ] && find $(BUILD)/pic -name '*.d')

all: $(ENGINE_LIBRARY)
$(ENGINE_LIBRARY): $(ENGINE_SHARED) $(ENGINE_ARCHIVE) engine/engine.map
	@mkdir -p $(@D) && echo "link $@"
	@$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) '-Wl,-rpath,$$ORIGIN/gatemass' -Wl,--version-script=engine/engine.map -o $@ \
		$(filter %.o,$^) $(ENGINE_ARCHIVE) $(LLAMA_LIBS) -lpthread $(LDLIBS)

install: install-engine
install-engine: $(ENGINE_LIBRARY)
	@mkdir -p $(DESTDIR)$(PREFIX)/lib $(addprefix $(DESTDIR)$(PREFIX)/include/gatemass/,engine base)
	install -m 755 $(ENGINE_LIBRARY) $(DESTDIR)$(PREFIX)/lib
	install -m 644 engine/engine.h $(DESTDIR)$(PREFIX)/include/gatemass/engine
	install -m 644 base/error.h $(DESTDIR)$(PREFIX)/include/gatemass/base

# An example of such a program, which the tests run.
test-programs: $(BUILD)/tests/host
$(call object,engine/examples/host.c): CPPFLAGS += $(LLAMA_CPPFLAGS)
$(BUILD)/tests/host: $(call object,engine/examples/host.c) $(ENGINE_LIBRARY)
	@mkdir -p $(@D) && echo "link $@"
	@$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ '-Wl,-rpath,$$ORIGIN/../lib' $(LLAMA_LIBS)

endif
