// The texts of tests/weights/same_texts_test.cpp, five times as long.
#include "tests/weights/support/same_texts.h"

namespace tutti::test {
namespace {

using LongQuantizedTexts = TextsOfEveryKind;

TEST_P(LongQuantizedTexts, AreTheSameOnEveryProcessorAndNumberOfThreads) {
  TUTTI_NEEDS_PUBLISHED(file, kModel);
  expect_same_texts(200);
}
INSTANTIATE_TEST_SUITE_P(, LongQuantizedTexts, ::testing::ValuesIn(kQuantizedKinds), TextsOfEveryKind::name_of);

}  // namespace
}  // namespace tutti::test
