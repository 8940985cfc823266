// Small published models in a folder of a test.
#pragma once

#include "tests/cli/support/program.h"

namespace tutti::test {

// Writes published/: a Llama of random weights as Hugging Face keeps it, with the tokenizer of write_tiny_run(), which
// comes before.
void write_published_decoder(const Workplace& work);
// Writes encoder/: a BERT of random weights with a tokenizer.
void write_published_encoder(const Workplace& work);

}  // namespace tutti::test
