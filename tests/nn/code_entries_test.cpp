// Weights as codes in state dicts and files.
#include "tutti/nn/code_entries.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/input_recorder.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/quantize.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

using facets::sample_tensor;

struct Net final : Module {
  explicit Net(int64_t seed = 0)
      : a(this, "a", 32, 5), b(this, "b", 32, 16), c(this, "c", 16, 3, LinearOptions{.bias = false}) {
    if (seed > 0) {
      seed_all(static_cast<uint64_t>(seed));
      initialize(*this);
    }
    eval();
  }
  Tensor forward(const Tensor& x) const {
    const NoGradScope no_grad;
    const auto [left, right] = multi_linear(x, a, b);
    return add(c(tanh(right)), sum(left, -1, true));
  }
  void quantize(Quantization kind) {
    InputRecorder inputs(*this);
    forward(sample_tensor(3, {50, 32}));
    inputs.stop();
    quantize_(*this, {.kind = kind, .group = 8, .inputs = &inputs});
  }
  Child<Linear> a, b, c;
};

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, value] : state)
    names.push_back(fmt::format("{} {} {}", name, value.extents(), name_of(value.dtype())));
  return names;
}

void expect_same_entries(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(names_of(a), names_of(b));
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor x = to_contiguous(a[i].second), y = to_contiguous(b[i].second);
    EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())), 0) << a[i].first;
  }
}

TEST(CodeEntries, StandUnderTheNameOfTheWeight) {
  Net net(1);
  net.quantize(Quantization::int8_static);
  EXPECT_EQ(names_of(net.state_dict("m.")),
            (std::vector<std::string>{
                "m.a.weight.int8_static [5, 32] i8", "m.a.weight.int8_static.scale [5] f32",
                "m.a.weight.int8_static.x_scale [1] f32", "m.a.weight.int8_static.x_zero_point [1] i32",
                "m.a.bias [5] f32", "m.b.weight.int8_static [16, 32] i8", "m.b.weight.int8_static.scale [16] f32",
                "m.b.weight.int8_static.x_scale [1] f32", "m.b.weight.int8_static.x_zero_point [1] i32",
                "m.b.bias [16] f32", "m.c.weight.int8_static [3, 16] i8", "m.c.weight.int8_static.scale [3] f32",
                "m.c.weight.int8_static.x_scale [1] f32", "m.c.weight.int8_static.x_zero_point [1] i32"}));
  Net groups(1);
  groups.quantize(Quantization::int4_weight_only);
  EXPECT_EQ(names_of(code_entries(groups)),
            (std::vector<std::string>{
                "a.weight.int4_weight_only [5, 16] u8", "a.weight.int4_weight_only.scale [5, 4] f32",
                "a.weight.int4_weight_only.minimum [5, 4] f32", "b.weight.int4_weight_only [16, 16] u8",
                "b.weight.int4_weight_only.scale [16, 4] f32", "b.weight.int4_weight_only.minimum [16, 4] f32",
                "c.weight.int4_weight_only [3, 8] u8", "c.weight.int4_weight_only.scale [3, 2] f32",
                "c.weight.int4_weight_only.minimum [3, 2] f32"}));
}

// Modules that never had numbers compute with the codes of a file or of a dict, eager, compiled, from several threads.
TEST(CodeEntries, ModulesWithoutNumbersTakeThem) {
  const tutti::testing::TemporaryFolder folder;
  const Tensor x = sample_tensor(5, {7, 32});
  for (const Quantization kind : kQuantizations) {
    Net from(1);
    from.quantize(kind);
    const Tensor expected = from.forward(x);
    const std::string path = folder / fmt::format("{}.safetensors", name_of(kind));
    save(from, path);
    for (const bool freeze : {false, true}) {
      Net by_file, by_dict;
      EXPECT_TRUE(load(by_file, path, {.freeze = freeze}).empty());
      EXPECT_TRUE(by_dict.load_state_dict(from.state_dict(), {.freeze = freeze}).empty());
      for (Net* to : {&by_file, &by_dict}) {
        EXPECT_FALSE(to->a->weight.is_materialized());
        EXPECT_EQ(to->c->operand().kind(), name_of(kind));
        expect_same_bits(to->forward(x), expected, std::string(name_of(kind)));
        const auto f = compile([&](const Tensor& in) { return to->forward(in); });
        expect_same_bits(f(x), expected, "compiled");
        expect_same_entries(to->state_dict(), from.state_dict());
        std::vector<Tensor> found(2);
        std::vector<std::thread> threads;
        for (Tensor& one : found) threads.emplace_back([&] { one = to->forward(x); });
        for (std::thread& thread : threads) thread.join();
        for (const Tensor& one : found) expect_same_bits(one, expected, "threads");
      }
      save(by_file, folder / "again.safetensors");
      expect_same_entries(by_file.state_dict(), from.state_dict());
    }
  }
}

// Also those that have numbers or blocks give them up, and functions that read these say so.
TEST(CodeEntries, TakeThePlaceOfNumbers) {
  Net from(1), to(2);
  from.quantize(Quantization::fp8);
  const Tensor x = sample_tensor(5, {2, 32});
  const auto f = compile([&](const Tensor& in) { return to.forward(in); });
  f(x);
  to.load_state_dict(from.state_dict());
  expect_same_bits(to.forward(x), from.forward(x));
  EXPECT_NE(message_of([&] { f(x); }).find("codes have replaced it (fp8)"), std::string::npos);
  EXPECT_EQ(message_of([&] { to.a->weight.use(); }),
            "parameter 'weight' [5, 32] has no values: codes have replaced it (fp8)");
}

// Functions that were compiled before read the codes of now; what the source does later is not seen.
TEST(CodeEntries, AreReplacedByOthersOfTheirKind) {
  const Tensor x = sample_tensor(5, {4, 32});
  for (const Quantization kind : kQuantizations) {
    Net net(1), other(2);
    net.quantize(kind), other.quantize(kind);
    const Tensor first = net.forward(x), second = other.forward(x);
    const auto f = compile([&](const Tensor& in) { return net.forward(in); });
    expect_same_bits(f(x), first);
    Net kept;
    kept.load_state_dict(net.state_dict());
    for (int turn = 0; turn < 2; ++turn) {
      net.load_state_dict(other.state_dict());
      expect_same_bits(f(x), second, std::string(name_of(kind)));
      expect_same_bits(net.forward(x), second);
      net.load_state_dict(kept.state_dict());
      expect_same_bits(f(x), first);
    }
    coded_operand_of(*other.a)->codes().scale.data<float>()[0] *= 2;
    expect_same_bits(f(x), first, "the values were copied");
  }
}

StateDict without(StateDict state, const std::string& name) {
  std::erase_if(state, [&](const auto& entry) { return entry.first == name; });
  return state;
}
StateDict with(StateDict state, const std::string& name, const Tensor& value) {
  for (auto& [known, held] : state)
    if (known == name) return held = value, state;
  state.emplace_back(name, value);
  return state;
}

TEST(CodeEntries, ThatDoNotFitChangeNothing) {
  Net from(1), numbers(2), codes(3), empty;
  from.quantize(Quantization::int8_static), codes.quantize(Quantization::int8);
  const StateDict good = from.state_dict();
  const std::string a = "a.weight.int8_static";
  const Tensor x = sample_tensor(5, {2, 32}), of_numbers = numbers.forward(x), of_codes = codes.forward(x);
  const auto nan = Tensor::of<float>({1, 1, 1, 1, std::numeric_limits<float>::quiet_NaN()});
  for (const auto& [state, message] : std::vector<std::pair<StateDict, std::string>>{
           {without(good, a), "a.weight: the source does not hold a.weight.int8_static"},
           {without(good, a + ".scale"), "a.weight: the source does not hold a.weight.int8_static.scale"},
           {without(good, a + ".x_zero_point"), "does not hold a.weight.int8_static.x_zero_point"},
           {with(good, a + ".minimum", Tensor::of<float>({1})),
            "the source holds a.weight.int8_static.minimum, which int8_static does not have"},
           {with(good, a + ".scale", Tensor::of<float>({1, 2})),
            "the source holds a.weight.int8_static.scale [2] f32; expected [5] f32"},
           {with(good, a, sample_tensor(1, {5, 32})), "a.weight.int8_static [5, 32] f32; expected [5, 32] i8"},
           {with(good, a, Tensor::empty({5}, DType::i8)), "a.weight.int8_static [5]; expected two dims"},
           {with(good, a, Tensor::empty({6, 32}, DType::i8)), "a.weight.int8_static.scale [5] f32; expected [6] f32"},
           {with(good, a + ".scale", nan), "'a.weight.int8_static.scale' holds a number that is not finite"},
           {with(good, a + ".x_scale", Tensor::of<float>({0})),
            "'a.weight.int8_static.x_scale' holds 0; expected a positive number whose inverse is one, too"},
           {with(good, a + ".x_zero_point", Tensor::of<int32_t>({300})),
            "'a.weight.int8_static.x_zero_point' holds 300; expected 0 to 255"},
           {with(good, "a.weight", sample_tensor(1, {5, 32})), "holds 'a.weight' twice"},
           {with(good, "a.weight.int8.scale", nan), "the values of 'a.weight' are there twice"},
           {with(good, "d.weight.int8", Tensor::empty({2, 2}, DType::i8)), "unexpected: d.weight.int8"},
           {with(good, "d.weight.int8.scale", Tensor::of<float>({1})), "unexpected: d.weight.int8.scale"}}) {
    for (Net* net : {&numbers, &empty})
      EXPECT_NE(message_of([&] { net->load_state_dict(state); }).find(message), std::string::npos)
          << message << ": " << message_of([&] { net->load_state_dict(state); });
  }
  EXPECT_NE(
      message_of([&] { codes.load_state_dict(good); })
          .find("a.weight: the source holds [5, 32] i8 cpu as codes (int8_static), and the module is held as codes "
                "(int8); load it into a module that was built anew"),
      std::string::npos);
  EXPECT_NE(message_of([&] {
              codes.load_state_dict(numbers.state_dict());
            }).find("the source holds [5, 32] f32 cpu, and the module is held as codes (int8)"),
            std::string::npos);
  expect_same_bits(numbers.forward(x), of_numbers);
  expect_same_bits(codes.forward(x), of_codes);
  EXPECT_FALSE(empty.a->weight.is_materialized());
  EXPECT_EQ(empty.a->operand().kind(), "dense");
  EXPECT_TRUE(empty.load_state_dict(good).empty()) << "after all of that";
  expect_same_bits(empty.forward(x), from.forward(x));
}

struct Tied final : Module {
  Child<Linear> a{this, "a", 8, 8, LinearOptions{.bias = false}}, b{this, "b", 8, 8, LinearOptions{.bias = false}};
  Parameter again = register_parameter("again", a->weight);
};

TEST(CodeEntries, AreForWeightsOfLinearLayersAlone) {
  Tied tied;
  Linear layer(8, 8, {.bias = false});
  initialize(layer);
  quantize_(layer);
  StateDict state;
  for (const std::string name : {"a", "b"}) append_code_entries(state, name + ".weight", *coded_operand_of(layer));
  EXPECT_NE(message_of([&] { tied.load_state_dict(state); })
                .find("a.weight: the source holds [8, 8] i8 cpu as codes (int8), and only linear layers compute with "
                      "codes, where no other module reads their weight"),
            std::string::npos);
  EXPECT_FALSE(tied.b->weight.is_materialized());
}

// A parameter may have a name that looks like one of codes.
struct Named final : Module {
  Parameter scale = register_parameter("scale", {2}, Init::zeros());
};
struct Outer final : Module {
  Child<Named> int8{this, "int8"};
};
struct Outermost final : Module {
  Child<Outer> weight{this, "weight"};
};

TEST(CodeEntries, AreToldFromParametersOfSuchNames) {
  Outermost from, to;
  initialize(from);
  from.weight->int8->scale.master().data<float>()[1] = 5;
  EXPECT_EQ(names_of(from.state_dict()), std::vector<std::string>{"weight.int8.scale [2] f32"});
  EXPECT_TRUE(to.load_state_dict(from.state_dict()).empty());
  EXPECT_EQ(to.weight->int8->scale.use().data<float>()[1], 5);
  EXPECT_FALSE(code_name_in("int8").has_value());
  EXPECT_FALSE(code_name_in(".int8").has_value());
  EXPECT_FALSE(code_name_in("int8.scale").has_value());
  EXPECT_FALSE(code_name_in("aint8").has_value());
  EXPECT_FALSE(code_name_in("a.int8.").has_value());
  EXPECT_FALSE(code_name_in("a.int8scale").has_value());
  EXPECT_EQ(code_name_in("a.int8.scale")->parameter, "a");
}

}  // namespace
}  // namespace tutti::nn
