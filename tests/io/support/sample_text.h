// Texts for tests, the same on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tutti::testing {

// `count` short documents of made-up but word-like English; a pure function of the arguments.
std::vector<std::string> sample_documents(int64_t count, uint32_t seed = 1);

// `nbytes` bytes, any of the 256 values.
std::string random_bytes(std::mt19937& random, size_t nbytes);

// `bytes` after one to four random edits: a byte flipped, dropped, doubled or replaced, or the end cut off.
std::string mutated(std::string bytes, std::mt19937& random);

}  // namespace tutti::testing
