// A run of the tiny model that takes a second, in a folder of its own: what is tried with it is the machinery around
// training.
#pragma once

#include <string>

#include "tests/cli/support/program.h"

namespace tutti::test {

// Writes run.toml, data/ (two .jsonl files and one of plain text) and tokenizer/ (Hugging Face's two files, with
// markers that only tokenizer_config.json names). `tutti train run.toml` makes runs/run: 6 steps, checkpoints at 3
// and 6.
void write_tiny_run(const Workplace& work);

// The results of a run as text that can be compared: hashes of all tensors, what was measured at each step, the
// sample.
std::string outcome_of(const Workplace& work, const std::string& run = "runs/run");

}  // namespace tutti::test
