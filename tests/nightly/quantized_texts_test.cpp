// The texts of tests/weights/same_texts_test.cpp, longer, and with every number of threads on every instruction set.
#include "tests/weights/support/same_texts.h"

namespace tutti::test {
namespace {

using LongQuantizedTexts = TextsOfEveryKind;

TEST_P(LongQuantizedTexts, AreTheSameOnEveryProcessorAndNumberOfThreads) {
  TUTTI_NEEDS_PUBLISHED(file, kModel);
  expect_same_texts(200, true);
}
INSTANTIATE_TEST_SUITE_P(, LongQuantizedTexts, ::testing::ValuesIn(kQuantizedKinds), TextsOfEveryKind::name_of);

}  // namespace
}  // namespace tutti::test
