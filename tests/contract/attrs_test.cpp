// The attrs of every sample of every op: text names each field, values survive it, and each field tells calls apart.
#include <cstring>
#include <functional>
#include <set>

#include "tests/contract/support/op_cases.h"
#include "tests/support/message_of.h"
#include "tutti/ops/scalar.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

class AttrsContract : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, AttrsContract, ::testing::ValuesIn(all_ops()), name_of_op);

// The fields of nested structs as well.
void for_each_field(const AttrsType& type, void* attrs, const std::function<void(const FieldRecord&, void*)>& visit) {
  for (const FieldRecord& f : type.fields) {
    if (f.type->nested != nullptr) for_each_field(*f.type->nested, f.at(attrs), visit);
    else visit(f, f.at(attrs));
  }
}

TEST_P(AttrsContract, TextNamesEveryFieldAndKeepsTheValues) {
  for (const Sample& sample : GetParam()->samples()) {
    if (sample.attrs.empty()) continue;
    const std::string text = sample.attrs.to_string();
    for (const FieldRecord& f : sample.attrs.type()->fields)
      EXPECT_NE(text.find(std::string(f.name) + ": "), std::string::npos) << f.name << " in " << text;
    const Attrs again = Attrs::from_text(*sample.attrs.type(), text);
    EXPECT_TRUE(again == sample.attrs) << text << " and " << again.to_string();
    EXPECT_EQ(again.hash(), sample.attrs.hash()) << text;
  }
}

// The text with another value in the place of `field`'s, which begins at `at`.
std::string with_value(const std::string& text, size_t at, std::string_view value) {
  return text.substr(0, at) + std::string(value) + text.substr(text.find_first_of(",}", at));
}

TEST_P(AttrsContract, TextWithAValueThatAnEnumLacksIsRefused) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    if (sample.attrs.empty()) continue;
    const std::string text = sample.attrs.to_string();
    Attrs attrs = sample.attrs;
    for_each_field(*attrs.type(), &attrs, [&](const FieldRecord& f, void*) {
      if (!f.type->is_enum) return;
      const std::string before = std::string(f.name) + ": ";
      const size_t at = text.find(before) + before.size();
      ASSERT_EQ(text.find(before, at), std::string::npos) << before << " stands twice in " << text;
      const std::string own = text.substr(at, text.find_first_of(",}", at) - at);
      for (const std::string bad : {"64", "-1", "1.5", "none", "99999999999999999999"}) {
        const std::string wrong = with_value(text, at, bad);
        const std::string message = message_of([&] { Attrs::from_text(*attrs.type(), wrong, op.name); });
        EXPECT_TRUE(message.starts_with(std::string(op.name) + ": attrs: field ")) << message;
        EXPECT_NE(message.find(std::string(f.name) + ": expected one of "), std::string::npos) << message;
        EXPECT_NE(message.substr(0, message.find(" and found ")).find(own), std::string::npos)
            << own << " is legal; " << message;
        EXPECT_NE(message.find("found \"" + bad + "\" at position " + std::to_string(at)), std::string::npos)
            << message;
      }
    });
  }
}

TEST(AttrsEnums, StandInOps) {
  std::set<std::string> found;
  for (const OpDef* op : all_ops()) {
    for (const Sample& sample : op->samples()) {
      Attrs attrs = sample.attrs;
      if (attrs.empty()) continue;
      for_each_field(*attrs.type(), &attrs, [&](const FieldRecord& f, void*) {
        if (f.type->is_enum) found.insert(std::string(op->name) + "." + f.name);
      });
    }
  }
  for (const char* name : {"matmul.axis", "band.band", "cast.dtype", "embedding_bag.mode"})
    EXPECT_TRUE(found.contains(name)) << name;
}

template <class T>
bool is_a(const FieldRecord& field) {
  return field.type == field_type<T>();
}

// Plans of distributed tensors are remembered without floating numbers.
TEST_P(AttrsContract, ShardingRulesDoNotReadNumbersUnlessTheOpSaysSo) {
  const OpDef& op = *GetParam();
  if (op.sharding == nullptr) return;
  bool reads = false;
  for (const Sample& sample : op.samples()) {
    if (sample.attrs.empty()) continue;
    const std::string rule = op.sharding({op, sample.inputs, sample.attrs});
    for (const double value : {0.0, -3.5, 2.0}) {
      Attrs changed = sample.attrs;
      for_each_field(*changed.type(), &changed, [&](const FieldRecord& f, void* at) {  // the bytes come first
        if (is_a<double>(f)) *static_cast<double*>(at) = value;
        if (!is_a<Scalar>(f)) return;
        Scalar& scalar = *static_cast<Scalar*>(at);
        scalar = scalar.kind() == Scalar::Kind::floating  ? Scalar(value)
                 : scalar.kind() == Scalar::Kind::boolean ? Scalar(value != 0)
                                                          : Scalar(static_cast<int64_t>(value));
      });
      reads = reads || op.sharding({op, sample.inputs, changed}) != rule;
      EXPECT_EQ(changed.hash_of_layout(), sample.attrs.hash_of_layout()) << changed.to_string();
      EXPECT_TRUE(changed.has_layout_of(sample.attrs)) << changed.to_string();
    }
  }
  EXPECT_EQ(reads, op.sharding_reads_numbers) << op.name;
}

// The dtype of a result follows from the kind of a scalar.
TEST_P(AttrsContract, TheKindOfAScalarIsPartOfALayout) {
  for (const Sample& sample : GetParam()->samples()) {
    if (sample.attrs.empty()) continue;
    Attrs changed = sample.attrs;
    bool has_scalar = false;
    for_each_field(*changed.type(), &changed, [&](const FieldRecord& f, void* at) {  // the bytes come first
      if (!is_a<Scalar>(f)) return;
      Scalar& scalar = *static_cast<Scalar*>(at);
      scalar = scalar.kind() == Scalar::Kind::integer ? Scalar(1.5) : Scalar(1);
      has_scalar = true;
    });
    EXPECT_EQ(changed.has_layout_of(sample.attrs), !has_scalar) << changed.to_string();
  }
}

TEST_P(AttrsContract, EachNumberTellsCallsApart) {
  for (const Sample& sample : GetParam()->samples()) {
    if (sample.attrs.empty()) continue;
    alignas(8) std::byte bytes[Attrs::kCapacity];
    const Attrs copy = Attrs::from_text(*sample.attrs.type(), sample.attrs.to_string());
    std::memcpy(bytes, &copy, sample.attrs.type()->size);  // the bytes come first
    for_each_field(*sample.attrs.type(), bytes, [&](const FieldRecord& f, void* at) {
      const bool is_number = is_a<int64_t>(f) || is_a<double>(f) || is_a<bool>(f) || is_a<uint64_t>(f) ||
                             is_a<uint32_t>(f) || is_a<SymInt>(f);
      if (!is_number) return;
      const auto hash = [&] { return hash_fields(*sample.attrs.type(), bytes, HashedFields::all); };
      const uint64_t before = hash();
      auto* const first = static_cast<unsigned char*>(at);
      *first ^= 1;
      EXPECT_NE(hash(), before) << f.name;
      EXPECT_FALSE(equal_fields(*sample.attrs.type(), bytes, &copy)) << f.name;
      *first ^= 1;
      EXPECT_EQ(hash(), before);
      EXPECT_TRUE(equal_fields(*sample.attrs.type(), bytes, &copy));
    });
  }
}

}  // namespace
}  // namespace tutti
