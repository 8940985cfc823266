// Attrs as their types list them: text, equality, hashes, symbolic sizes and random keys.
#include "tutti/ops/engine/attrs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <set>

#include "tests/support/message_of.h"
#include "tutti/core/sym_graph.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/scalar.h"

namespace tutti {
namespace {

enum class Mode : int8_t { wide, narrow };

struct Window {
  std::array<int64_t, 2> size{1, 1};
  SymInt step;
  static constexpr auto fields() {
    return field_list(field::number<&Window::size>("size"), field::size<&Window::step>("step"));
  }
};

struct Everything {
  int64_t dim;
  bool flag;  // padding behind it
  uint32_t tag;
  double eps;
  DType dtype;
  Mode mode;
  Dims dims;
  Shape sizes;
  SymInt rows;
  Scalar value;
  Window window;
  static constexpr auto fields() {
    return field_list(field::number<&Everything::dim>("dim"), field::number<&Everything::flag>("flag"),
                      field::number<&Everything::tag>("tag"), field::number<&Everything::eps>("eps"),
                      field::output_dtype<&Everything::dtype>("dtype"), field::rule<&Everything::mode>("mode"),
                      field::number<&Everything::dims>("dims"), field::size<&Everything::sizes>("sizes"),
                      field::size<&Everything::rows>("rows"), field::size<&Everything::value>("value"),
                      field::nested<&Everything::window>("window"));
  }
};

Everything example() {
  return {.dim = -3,
          .flag = true,
          .tag = 7,
          .eps = 0.1,
          .dtype = DType::bf16,
          .mode = Mode::narrow,
          .dims = {0, 2},
          .sizes = {5, 6},
          .rows = 9,
          .value = 2.0,
          .window = {{3, 4}, 2}};
}

TEST(Attrs, AreTextAndAreReadFromIt) {
  const Attrs attrs = Attrs::of(example());
  EXPECT_EQ(
      attrs.to_string(),
      "{dim: -3, flag: true, tag: 7, eps: 0.1, dtype: bf16, mode: 1, dims: [0, 2], sizes: [5, 6], rows: 9, value: 2.0, "
      "window: {size: [3, 4], step: 2}}");
  EXPECT_EQ(attrs.type_name(), "Everything");
  const Attrs again = Attrs::from_text(*attrs.type(), attrs.to_string());
  EXPECT_TRUE(again == attrs);
  EXPECT_EQ(again.as<Everything>().window.size[1], 4);
  EXPECT_EQ(Attrs().to_string(), "");
  EXPECT_EQ(Attrs().type_name(), "none");
}

TEST(Attrs, ScalarsAndDoublesKeepKindAndBitsAsText) {
  for (const Scalar& value :
       {Scalar(3), Scalar(3.0), Scalar(-0.0), Scalar(true), Scalar(1e300), Scalar(INFINITY), Scalar(0x1.fffffep-30)}) {
    Everything e = example();
    e.value = value;
    e.eps = value.to_double() / 3;
    const Attrs attrs = Attrs::of(e);
    EXPECT_TRUE(Attrs::from_text(*attrs.type(), attrs.to_string()) == attrs) << attrs.to_string();
  }
}

TEST(Attrs, TextThatDoesNotFitSaysWhere) {
  const AttrsType& type = *Attrs::of(Window{}).type();
  const auto complaint = [&](const char* text) -> std::string {
    try {
      Attrs::from_text(type, text);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(complaint("{size: [1, 2], stop: 3}").find("expected \"step\" and found \"stop\" at position 14"),
            std::string::npos)
      << complaint("{size: [1, 2], stop: 3}");
  EXPECT_NE(complaint("{size: [1], step: 3}").find("expected \",\""), std::string::npos);
  EXPECT_NE(complaint("{size: [1, x], step: 3}").find("expected an integer"), std::string::npos);
  EXPECT_NE(complaint("{size: [1, 2], step: 3} more").find("expected the end"), std::string::npos);
}

TEST(Attrs, TextWithAnotherValueThanAnEnumHasNamesTheOpTheFieldAndWhatIsLegal) {
  const AttrsType& type = *Attrs::of(example()).type();
  std::string text = Attrs::of(example()).to_string();
  text.replace(text.find("mode: 1"), 7, "mode: 2");
  EXPECT_EQ(message_of([&] { Attrs::from_text(type, text, "blur"); }),
            "blur: attrs: field mode: expected one of 0 (wide), 1 (narrow) and found \"2\" at position 59 of \"" +
                text + "\"");
  text.replace(text.find("mode: 2"), 7, "mode: 0");
  EXPECT_EQ(Attrs::from_text(type, text).as<Everything>().mode, Mode::wide);
  text.replace(text.find("step: 2"), 7, "step: x");
  EXPECT_NE(message_of([&] { Attrs::from_text(type, text); }).find("attrs: field window.step: expected an integer"),
            std::string::npos);
}

struct Pointing {
  int* to;
  static constexpr auto fields() { return field_list(field::handle<&Pointing::to>("to")); }
};

TEST(Attrs, HandlesAreNoText) {
  int here = 0;
  const Attrs attrs = Attrs::of(Pointing{&here});
  EXPECT_EQ(attrs.to_string(), "{to: <handle>}");
  try {
    Attrs::from_text(*attrs.type(), attrs.to_string());
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("a handle on something alive"), std::string::npos) << e.what();
  }
}

// What lay in memory before must not tell equal ones apart: ranks would come to graphs of their own.
TEST(Attrs, DoNotCompareWhatLiesBetweenTheirFields) {
  alignas(Everything) unsigned char memory[2][sizeof(Everything)];
  std::memset(memory[0], 0x00, sizeof(Everything));
  std::memset(memory[1], 0xa5, sizeof(Everything));
  Attrs made[2];
  for (int i = 0; i < 2; ++i) {
    auto* value = new (memory[i]) Everything;
    *value = example();
    made[i] = Attrs::of(*value);
  }
  EXPECT_TRUE(made[0] == made[1]);
  EXPECT_EQ(made[0].hash(), made[1].hash());
}

// Numbers such as 1 in a list of one cancelled its size.
TEST(Attrs, SmallListsHaveHashesOfTheirOwn) {
  std::set<uint64_t> hashes;
  int64_t lists = 0;
  const auto add = [&](const Dims& dims) {
    Everything a = example();
    a.dims = dims;
    hashes.insert(Attrs::of(a).hash());
    ++lists;
  };
  add({});
  for (int64_t i = -2; i < 4; ++i) {
    add({i});
    for (int64_t k = -2; k < 4; ++k) {
      add({i, k});
      for (int64_t m = -2; m < 4; ++m) add({i, k, m});
    }
  }
  EXPECT_EQ(std::ssize(hashes), lists);
}

TEST(Attrs, DoNotCompareElementsBehindTheEndOfAList) {
  Everything a = example(), b = example();
  b.dims = {0, 2, 77};
  b.dims.pop_back();
  b.sizes = {5, 6, 7};
  b.sizes.pop_back();
  EXPECT_TRUE(Attrs::of(a) == Attrs::of(b));
  EXPECT_EQ(Attrs::of(a).hash(), Attrs::of(b).hash());
  b.dims.push_back(1);
  EXPECT_FALSE(Attrs::of(a) == Attrs::of(b));
  EXPECT_NE(Attrs::of(a).hash(), Attrs::of(b).hash());
}

TEST(Attrs, EachFieldTellsThemApart) {
  const auto differs = [](auto change) {
    Everything e = example();
    change(e);
    const Attrs a = Attrs::of(example()), b = Attrs::of(e);
    return !(a == b) && a.hash() != b.hash();
  };
  EXPECT_TRUE(differs([](Everything& e) { e.dim = 3; }));
  EXPECT_TRUE(differs([](Everything& e) { e.flag = false; }));
  EXPECT_TRUE(differs([](Everything& e) { e.tag = 8; }));
  EXPECT_TRUE(differs([](Everything& e) { e.eps = std::nextafter(0.1, 1.0); }));
  EXPECT_TRUE(differs([](Everything& e) { e.dtype = DType::f16; }));
  EXPECT_TRUE(differs([](Everything& e) { e.mode = Mode::wide; }));
  EXPECT_TRUE(differs([](Everything& e) { e.dims = {2, 0}; }));
  EXPECT_TRUE(differs([](Everything& e) { e.sizes = {5}; }));
  EXPECT_TRUE(differs([](Everything& e) { e.rows = 8; }));
  EXPECT_TRUE(differs([](Everything& e) { e.value = 2; })) << "the integer is not the float";
  EXPECT_TRUE(differs([](Everything& e) { e.window.size[1] = 5; }));
  EXPECT_TRUE(differs([](Everything& e) { e.window.step = 3; }));
  EXPECT_FALSE(Attrs::of(Window{}) == Attrs()) << "another type";
}

TEST(Attrs, OnlyRulesAndOutputDtypesBelongToAKernel) {
  Everything e = example();
  const uint64_t before = Attrs::of(e).hash_of_rules();
  e.dim = 9, e.eps = 3, e.dims = {}, e.sizes = {1}, e.value = 8, e.window.step = 5;
  EXPECT_EQ(Attrs::of(e).hash_of_rules(), before);
  e.mode = Mode::wide;
  EXPECT_NE(Attrs::of(e).hash_of_rules(), before);
  e = example();
  e.dtype = DType::f64;
  EXPECT_NE(Attrs::of(e).hash_of_rules(), before);
  EXPECT_EQ(Attrs::of(Window{}).hash_of_rules(), 0u);
  EXPECT_EQ(Attrs().hash_of_rules(), 0u);
}

// A double whose bits are those of a symbol is a number all the same.
TEST(Attrs, SymbolsAreFoundInSizesOnly) {
  SymGraph graph;
  const SymGraph::Scope scope(graph);
  const SymInt n = graph.symbol("n", 10);
  Everything e = example();
  e.rows = n + 1;
  e.sizes = {2, n};
  e.value = Scalar(n);
  e.window.step = n;
  e.dim = n.raw();
  e.eps = std::bit_cast<double>(n.raw());
  Attrs attrs = Attrs::of(e);
  const int64_t now[] = {20};
  attrs.map_sizes([&](SymInt size) { return SymInt(graph.evaluate(size, now)); });
  const Everything& mapped = attrs.as<Everything>();
  EXPECT_EQ(mapped.rows.value(), 21);
  EXPECT_EQ(mapped.sizes[1].value(), 20);
  EXPECT_EQ(mapped.value.to_int64(), 20);
  EXPECT_FALSE(mapped.value.is_symbolic());
  EXPECT_EQ(mapped.window.step.value(), 20);
  EXPECT_EQ(mapped.dim, n.raw());
  EXPECT_EQ(std::bit_cast<int64_t>(mapped.eps), n.raw());
}

struct Drawn {
  RandomKey key;
  uint64_t number;
  static constexpr auto fields() {
    return field_list(field::random_key<&Drawn::key>("key"), field::number<&Drawn::number>("number"));
  }
};

TEST(Attrs, RandomKeysAreFoundByTheirFields) {
  Attrs attrs = Attrs::of(Drawn{.key = {.key = ~uint64_t{0}, .step = 3}, .number = ~uint64_t{0}});
  int seen = 0;
  attrs.visit_keys([&](RandomKey& key) { ++seen, key.key = 5; });
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(attrs.as<Drawn>().key.key, 5u);
  EXPECT_EQ(attrs.as<Drawn>().key.step, 3u);
  EXPECT_EQ(attrs.as<Drawn>().number, ~uint64_t{0});
  EXPECT_TRUE(Attrs::from_text(*attrs.type(), attrs.to_string()) == attrs) << attrs.to_string();
}

TEST(Attrs, OfAnotherTypeAreAnInternalError) {
  try {
    Attrs::of(Window{}).as<Drawn>();
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("attrs are Window, and Drawn was expected"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
