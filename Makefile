# gatemass: everything builds into build/. `make help` lists the targets.

BUILD    ?= build
PREFIX   ?= /usr/local
CC       ?= cc
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
CPPFLAGS += -I. -D_GNU_SOURCE
ALL_CFLAGS = -std=c11 $(WARNINGS) $(CFLAGS)
LDLIBS   := -lzstd -lcjson -lxxhash -lm -ldl

# A program is a folder with a main.c; all other sources of the modules make one library.
PROGRAMS := traces sim report
MODULES  := base traces policies sim report engine

# engine/plugin*.c need ggml's headers: engine/part.mk compiles them.
LIB_SOURCES := $(filter-out %/main.c engine/plugin%.c,$(foreach m,$(MODULES),$(wildcard $(m)/*.c)))
LIBRARY     := $(BUILD)/libgatemass.a
BINARIES    := $(foreach p,$(PROGRAMS),$(if $(wildcard $(p)/main.c),$(BUILD)/bin/$(p)))

# Tests, and the programs of `make bench`, `make soak` and `make fuzz`, link with tests/support and the reference replay.
TEST_SUPPORT  := $(wildcard tests/support/*.c) $(filter-out tests/reference/test_%.c,$(wildcard tests/reference/*.c))
TEST_SOURCES  := $(foreach d,unit reference cli cuda bench,$(wildcard tests/$(d)/test_*.c))
BENCH_SOURCES := $(filter-out $(TEST_SOURCES),$(wildcard tests/bench/*.c))
SOAK_SOURCES  := $(wildcard tests/soak/*.c)
FUZZ_SOURCES  := $(wildcard tests/fuzz/fuzz_*.c)

TESTS   := $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(TEST_SOURCES)))
BENCHES := $(BENCH_SOURCES:tests/%.c=$(BUILD)/%)
SOAKS   := $(SOAK_SOURCES:tests/%.c=$(BUILD)/%)
FUZZERS := $(FUZZ_SOURCES:tests/%.c=$(BUILD)/%)

object = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
link   = @mkdir -p $(@D) && echo "link $@" && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBRARY)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

all: $(BINARIES) ## build the programs into build/bin (default)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D) && echo "cc   $<"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Where the profiles stand that come with the sources, for a build folder outside of the tree.
$(BUILD)/obj/sim/profile.o: CPPFLAGS += -DGM_SOURCE_DIR='"$(CURDIR)"'

$(LIBRARY): $(call object,$(LIB_SOURCES))
	@rm -f $@ && ar rcs $@ $^

$(BINARIES): $(BUILD)/bin/%: $(BUILD)/obj/%/main.o $(LIBRARY)
	$(link) $(LDLIBS)

# One rule a test: its source may stand in any of these folders.
$(foreach t,$(TEST_SOURCES),$(eval $(BUILD)/tests/$(basename $(notdir $(t))): $(call object,$(t))))
$(TESTS): $(call object,$(TEST_SUPPORT)) $(LIBRARY)
	$(link) -lcmocka $(LDLIBS)

ENGINE_THREAD_TESTS := $(addprefix $(BUILD)/tests/test_engine_,store store_errors link link_random link_times copies spans)
$(ENGINE_THREAD_TESTS): LDLIBS += -lpthread

$(BENCHES) $(SOAKS) $(FUZZERS): $(BUILD)/%: $(BUILD)/obj/tests/%.o $(call object,$(TEST_SUPPORT)) $(LIBRARY)
	$(link) -lcmocka $(LDLIBS)

# --- what a newcomer types: both install what is missing, build and run ---

demo: $(BUILD)/deps.done ## from nothing to a first result, in a minute
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) sh scripts/demo.sh

# The tests of what stands on llama.cpp need it: fetched once (recorder/part.mk). LLAMA=no leaves them out, LLAMA_DIR= takes yours.
LLAMA ?= yes
test: $(BUILD)/$(if $(filter no,$(LLAMA)),deps,deps-test).done ## build and run all tests (LLAMA=no: without those that need llama.cpp)
ifneq ($(LLAMA),no)
	@$(MAKE) --no-print-directory llama || { echo "make test: llama.cpp cannot be had: LLAMA_DIR=TREE takes yours," \
		"and \"make test LLAMA=no\" leaves out what needs it" >&2; exit 1; }
endif
	@$(MAKE) --no-print-directory run-tests

run-tests: test-programs
	@LLAMA=$(LLAMA) sh tests/run.sh $(BUILD)

test-programs: $(TESTS) $(BINARIES) $(BENCHES)

test-update: $(BUILD)/tests/test_cli $(BINARIES) ## rewrite the expected outputs in tests/cli/cases
	@GM_UPDATE=1 GM_BUILD=$(abspath $(BUILD)) $<

deps: ## install the compiler and libraries that are missing (apt), or list them
	@CC="$(CC)" sh scripts/deps.sh

# Looked at once in each build folder, and again when the list changes.
$(BUILD)/deps.done: scripts/deps.sh
	@CC="$(CC)" sh scripts/deps.sh
	@mkdir -p $(BUILD) && touch $@

$(BUILD)/deps-test.done: scripts/deps.sh
	@CC="$(CC)" LLAMA_DIR="$(LLAMA_DIR)" sh scripts/deps.sh test
	@mkdir -p $(BUILD) && touch $@

# --- what a developer types ---

bench: $(BENCHES) $(BINARIES) ## measure speed
	@CC="$(CC)" BUILD=$(BUILD) sh scripts/bench.sh

scaling: $(BENCHES) $(BINARIES) ## measure how the cost of a replay grows (docs/scaling.svg)
	@BUILD=$(BUILD) sh scripts/scaling.sh

soak: $(SOAKS) $(BINARIES) ## long checks
	@set -e; for s in $(SOAKS); do echo "== $$s"; $$s; done

FUZZ_SECONDS ?= 60
fuzz: ## feed damaged input to the readers, FUZZ_SECONDS each (clang)
	@$(MAKE) --no-print-directory run-fuzz BUILD=$(BUILD)/fuzzing CC=clang \
		CFLAGS="-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"

run-fuzz: LDFLAGS += -fsanitize=fuzzer
run-fuzz: $(FUZZERS)
	@sh scripts/fuzz.sh $(FUZZ_SECONDS) $(FUZZERS)

check: check-tools check-format check-lint check-clang check-sanitize check-engine-threads ## format, static analysis, clang, all tests under sanitizers

check-tools:
	@CC="$(CC)" sh scripts/deps.sh check

C_FILES   := $(sort $(foreach d,$(MODULES) recorder recorder/* emulate engine tests/*,$(wildcard $(d)/*.c $(d)/*.h)))
# The analysers read all of it, but where llama.cpp is not there (recorder/part.mk) the files that include its headers.
LINT_PARTS   = recorder recorder/probe emulate
LINT_SOURCES = $(sort $(LIB_SOURCES) $(PROGRAMS:%=%/main.c) \
	$(filter-out $(if $(LLAMA_CPPFLAGS),,recorder/hook%.c),$(wildcard $(LINT_PARTS:%=%/*.c))))

check-format:
	clang-format --dry-run -Werror $(C_FILES)

check-lint:
	@echo clang-tidy; printf "%s\n" $(LINT_SOURCES) | \
		xargs -P 2 -I {} clang-tidy --quiet {} -- -std=c11 $(CPPFLAGS) $(LLAMA_CPPFLAGS) 2>/dev/null
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--max-configs=1 $(CPPFLAGS) $(LINT_SOURCES) $(TEST_SUPPORT) $(TEST_SOURCES)
	shellcheck -S warning $(wildcard scripts/*.sh tests/*.sh) .ci/run

check-clang:
	@$(MAKE) --no-print-directory test-programs BUILD=$(BUILD)/clang CC=clang

check-sanitize:
	@$(MAKE) --no-print-directory run-tests BUILD=$(BUILD)/asan \
		CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"

# Data races between the engine's threads, which the other sanitizers do not see. (Its code makes gcc guess wrongly about lengths of text.)
check-engine-threads:
	@$(MAKE) --no-print-directory run-engine-thread-tests BUILD=$(BUILD)/tsan LLAMA=no \
		CFLAGS="-O1 -g -fsanitize=thread -Wno-format-truncation"
run-engine-thread-tests: $(ENGINE_THREAD_TESTS)
	@set -e; for t in $^; do $$t; done

# --- what a packager types ---

VERSION := $(shell sed -n 's/.*GM_VERSION "\(.*\)".*/\1/p' base/version.h)
BINDIR  := $(DESTDIR)$(PREFIX)/bin
DATADIR := $(DESTDIR)$(PREFIX)/share/gatemass
DOCDIR  := $(DESTDIR)$(PREFIX)/share/doc/gatemass

install: all ## into PREFIX (/usr/local), the programs as gatemass-NAME
	@mkdir -p $(BINDIR) $(DATADIR)/profiles $(DOCDIR)
	for p in $(notdir $(BINARIES)); do install -m 755 $(BUILD)/bin/$$p $(BINDIR)/gatemass-$$p; done
	install -m 644 $(wildcard sim/profiles/*.json) $(DATADIR)/profiles
	install -m 644 $(wildcard README.md LICENSE docs/*.md docs/*.png docs/*.svg) $(DOCDIR)

uninstall: ## remove what install put there
	rm -f $(PROGRAMS:%=$(BINDIR)/gatemass-%)
	rm -rf $(DATADIR) $(DOCDIR)

dist: ## a tarball of the committed sources in build/
	@mkdir -p $(BUILD)
	git archive --prefix=gatemass-$(VERSION)/ -o $(BUILD)/gatemass-$(VERSION).tar.gz HEAD

clean: ## remove build/
	rm -rf $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(filter %Makefile %.mk,$(MAKEFILE_LIST)) | sort -u | expand -t 22

.PHONY: all demo test run-tests test-programs test-update deps bench soak fuzz run-fuzz check check-tools check-format \
	check-lint check-clang check-sanitize check-engine-threads run-engine-thread-tests install uninstall dist clean help

# A part with needs of its own (llama.cpp, CUDA) brings its rules along.
-include $(wildcard */part.mk)
-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')
