# What report brings along: files built into the program, and the tests of the page in a browser. The main Makefile includes this file at
# its end.

EMBEDDED := $(sort $(wildcard report/page/*.css report/page/*.js report/plots/*.gp))

$(BUILD)/gen/embedded_files.c: report/embed.sh $(EMBEDDED)
	@mkdir -p $(@D) && echo "gen  $@"
	@sh report/embed.sh $(EMBEDDED) > $@

$(BUILD)/obj/gen/embedded_files.o: $(BUILD)/gen/embedded_files.c report/embedded.h
	@mkdir -p $(@D) && echo "cc   $<"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

$(LIBRARY): $(BUILD)/obj/gen/embedded_files.o

# --- the findings of the paper, tried on a model: MODEL= and TEXTS= for one of yours (scripts/findings.sh) ---

findings: llama ## emulate the paper's findings on tinymoe, write docs/findings.md (MODEL=x.gguf TEXTS=y.jsonl: yours)
	@$(MAKE) --no-print-directory all
	@BUILD="$(BUILD)" MODEL="$(MODEL)" TEXTS="$(TEXTS)" sh scripts/findings.sh

.PHONY: findings

# --- the page in a browser: Chromium is large, so this is not among the tests of `make test` ---

BROWSER_OBJECTS := $(call object,$(wildcard tests/browser/*.c))

$(BUILD)/browser/test_page: $(BROWSER_OBJECTS) $(LIBRARY)
	$(link) -lcmocka $(LDLIBS)

test-browser: $(BUILD)/deps.done ## the page of report html in headless Chromium (installed with apt if it is missing)
	@sh tests/browser/deps.sh
	@$(MAKE) --no-print-directory run-browser-tests

run-browser-tests: $(BUILD)/browser/test_page $(BINARIES)
	@GM_BUILD=$(abspath $(BUILD)) $<

.PHONY: test-browser run-browser-tests
