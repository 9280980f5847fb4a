# What needs llama.cpp: record-traces and its tests. The main Makefile includes this file at its end.
#
# `make llama` fetches llama.cpp into LLAMA_DEPS (scripts/llama.sh: LLAMA_DIR=TREE takes yours, LLAMA_VARIANT=cuda NVIDIA's build). Until
# then these programs are left out, and nothing here touches the network.
LLAMA_DEPS ?= build/deps

llama: ## fetch llama.cpp for record-traces (LLAMA_DIR=TREE: use yours; LLAMA_VARIANT=cuda)
	@LLAMA_DIR="$(LLAMA_DIR)" LLAMA_VARIANT="$(LLAMA_VARIANT)" sh scripts/llama.sh $(LLAMA_DEPS)

test-llama: llama ## only the tests that need llama.cpp
	@$(MAKE) --no-print-directory run-llama-tests

LLAMA_INSTALL = $(DESTDIR)$(PREFIX)/lib/gatemass

uninstall: uninstall-llama
uninstall-llama:
	rm -rf $(LLAMA_INSTALL)
	rm -f $(addprefix $(BINDIR)/gatemass-,record-traces emulate probe-machine)

.PHONY: llama test-llama run-llama-tests bench-llama soak-kill install-llama uninstall-llama

ifneq ($(LLAMA),no)
include $(wildcard $(LLAMA_DEPS)/llama/llama.mk)
endif

ifdef LLAMA_LIBS

# Fetched libraries are installed beside the programs (install-llama), which look there first; a user's own stay where they are.
LLAMA_FETCHED := $(filter $(abspath $(LLAMA_DEPS))/%,$(LLAMA_LIBDIR))
LLAMA_LIBS    := '-Wl,-rpath,$$ORIGIN/../lib/gatemass' $(LLAMA_LIBS)

RECORDER_SOURCES := $(filter-out recorder/main.c,$(wildcard recorder/*.c))
RECORDER_OBJECTS := $(call object,$(RECORDER_SOURCES))
FIXTURE_OBJECTS  := $(call object,tests/fixtures/gguf.c tests/fixtures/tables.c tests/fixtures/pad.c)
QUANTIZE_OBJECT  := $(call object,tests/fixtures/quantize.c) # needs libllama, the others only ggml
LLAMA_TESTS      := $(patsubst tests/llama/%.c,$(BUILD)/tests/llama/%,$(wildcard tests/llama/test_*.c))
FIXTURE_PROGRAMS := $(BUILD)/tests/mkfixture $(BUILD)/tests/padmodel

# Only these see llama.cpp's headers, as system headers: its code is not ours to warn about.
$(call object,$(wildcard recorder/hook*.c)) $(FIXTURE_OBJECTS) $(QUANTIZE_OBJECT): CPPFLAGS += $(LLAMA_CPPFLAGS)

ifneq ($(wildcard recorder/main.c),)
BINARIES += $(BUILD)/bin/record-traces
all: $(BUILD)/bin/record-traces
$(BUILD)/bin/record-traces: $(BUILD)/obj/recorder/main.o $(RECORDER_OBJECTS) $(LIBRARY)
	$(link) $(LLAMA_LIBS) -lpthread $(LDLIBS)
endif

$(LLAMA_TESTS): $(BUILD)/tests/llama/%: $(BUILD)/obj/tests/llama/%.o $(BUILD)/obj/tests/llama/support.o $(RECORDER_OBJECTS) \
		$(FIXTURE_OBJECTS) $(QUANTIZE_OBJECT) $(LIBRARY)
	$(link) $(LLAMA_LIBS) -lcmocka -lpthread $(LDLIBS)

$(FIXTURE_PROGRAMS): $(BUILD)/tests/%: $(BUILD)/obj/tests/fixtures/%.o $(FIXTURE_OBJECTS) $(LIBRARY)
	$(link) $(LLAMA_GGML_LIBS) $(LDLIBS)

$(BUILD)/tests/llama/bench_record: $(BUILD)/obj/tests/llama/bench_record.o $(RECORDER_OBJECTS) $(LIBRARY)
	$(link) $(LLAMA_LIBS) -lpthread $(LDLIBS)

# tinymoe with experts of a real model's size (2.4 GB); a make that needed it removes it at its end.
PADDED := $(BUILD)/tinymoe-4096.gguf
.INTERMEDIATE: $(PADDED)
$(PADDED): $(BUILD)/tests/padmodel
	$< tests/tinymoe/tinymoe-F16.gguf $@ 4096

# Overhead of recording on tinymoe, and with experts of a real model's size.
bench-llama: $(BUILD)/tests/llama/bench_record $(PADDED)
	$< tests/tinymoe/tinymoe-F16.gguf
	$< $(PADDED) 512 7

# All programs that need llama.cpp: the main Makefile knew only its own when it wrote these rules.
test-programs: $(LLAMA_TESTS) $(FIXTURE_PROGRAMS) $(BINARIES)
test-update: $(FIXTURE_PROGRAMS) $(BINARIES)

# kill -9 at a hundred random moments; `make test` does ten
soak: soak-kill
soak-kill: $(BUILD)/tests/llama/test_kill $(filter %/record-traces,$(BINARIES))
	GM_BUILD=$(abspath $(BUILD)) GM_KILLS=100 GM_SEED=2 $<

run-llama-tests: $(LLAMA_TESTS) $(FIXTURE_PROGRAMS) $(filter %/record-traces,$(BINARIES))
	@set -e; for t in $(LLAMA_TESTS); do echo "== $$t"; GM_BUILD=$(abspath $(BUILD)) $$t; done

install: install-llama
install-llama:
ifneq ($(LLAMA_FETCHED),)
	@mkdir -p $(LLAMA_INSTALL)
	install -m 644 $(LLAMA_LIBDIR)/*.so $(LLAMA_INSTALL)
	install -m 644 $(LLAMA_DEPS)/llama/LICENSE $(LLAMA_INSTALL)/LICENSE.llama.cpp
else
	@echo "the installed programs use llama.cpp in $(LLAMA_LIBDIR): leave it there"
endif

else

run-llama-tests:
	@echo "llama.cpp is not there: make llama" >&2; exit 1

endif

include recorder/cuda.mk
