#include "tests/weights/support/same_texts.h"

namespace tutti::test {
namespace {

using QuantizedTexts = TextsOfEveryKind;

TEST_P(QuantizedTexts, AreTheSameOnEveryProcessorAndNumberOfThreads) {
  TUTTI_NEEDS_PUBLISHED(file, kModel);
  expect_same_texts(24, false);
}
INSTANTIATE_TEST_SUITE_P(, QuantizedTexts, ::testing::ValuesIn(kQuantizedKinds), TextsOfEveryKind::name_of);

}  // namespace
}  // namespace tutti::test
