// What a module takes and what a source of values offers, by names, before anything is loaded.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "tutti/nn/block_entries.h"
#include "tutti/nn/code_entries.h"
#include "tutti/nn/module.h"

namespace tutti::nn {

class Linear;

// Something that takes a value by name: a parameter or a persistent buffer.
struct Target {
  std::vector<std::string> names;  // the first one, and those of a parameter that has several
  Extents sizes;
  bool holds_floats;
  Parameter parameter;  // undefined: a buffer
  Buffer buffer;
  Linear* layer = nullptr;  // whose weight the parameter is
};
std::vector<Target> targets_of(Module& module);

// Name and shape of what is to be loaded, without its values.
struct Offer {
  std::string_view name;  // of a parameter or buffer; entries of blocks and codes offer the numbers of their parameter
  Extents sizes;
  DType dtype;
  std::string text;  // for messages
  bool is_decoded = true;
};

// What a source offers.
class Offers {
 public:
  // `targets` outlive this; `source` is a name for messages.
  Offers(const std::vector<Target>& targets, std::string source);
  // An entry of the source, whose name outlives this.
  void add(std::string_view name, const Extents& sizes, DType dtype, std::string text, bool is_decoded = true);
  // All entries were added.
  void complete();

  const std::string& source() const { return source_; }
  const std::vector<Offer>& list() const { return list_; }
  const BlockEntries& blocks() const { return blocks_; }
  const CodeEntries& codes() const { return codes_; }

 private:
  const std::string source_;
  std::unordered_set<std::string_view> own_names_;  // of the targets
  std::vector<Offer> list_;
  BlockEntries blocks_;
  CodeEntries codes_;
  std::map<std::string_view, Offer> of_codes_;  // the entries of codes themselves
};

// The value of a name that is offered; of blocks and codes the numbers.
using ValueOf = FunctionRef<Tensor(const std::string& name)>;

// Compares what is offered with what the module takes, before anything is copied. Where a parameter is offered under
// several of its names, `value_of` says whether they agree. UsageError as Module::load_state_dict().
LoadReport compare(const Module& module, const std::vector<Target>& targets, const Offers& offers, ValueOf value_of,
                   const LoadOptions& options);

}  // namespace tutti::nn
