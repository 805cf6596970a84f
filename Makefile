# Short names for what people do here. `make` alone lists them.

CARGO ?= cargo

# Lets the fuzz targets be checked without a C++ compiler: nothing is linked.
FUZZ_CHECK = CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a

.DEFAULT_GOAL := help
.PHONY: help try test bench fmt lint fuzz

help: ## list these goals
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

try: ## see what Headpond does, on this machine, in a few minutes (no root, no spare disks)
	@scripts/setup
	@$(CARGO) run --release --package headpond -- try

test: ## install the tools that tests use, where possible, and run every test
	@scripts/setup --test
	@$(CARGO) xtask test

bench: ## measure the hot paths beside their limits and rivals; writes target/bench.json
	@scripts/setup --bench
	@$(CARGO) xtask bench

fmt: ## format the source
	@$(CARGO) fmt --all
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml

lint: ## check format, clippy, licences and the rules of this house
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --locked --workspace --all-targets -- -D warnings
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@$(FUZZ_CHECK) $(CARGO) clippy --quiet --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings
	@$(CARGO) xtask tidy
	@scripts/deny

fuzz: ## feed every reader of foreign bytes with hostile input, for a minute each
	@$(CARGO) xtask fuzz --seconds 60
