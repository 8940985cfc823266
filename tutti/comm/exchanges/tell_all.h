// TellAll: every rank tells all others a block of bytes, of one length on all ranks, and the call then ends with a
// UsageError that says what they make of it together.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/collective.h"
#include "tutti/core/error.h"

namespace tutti::comm {

class TellAll : public Collective {
 public:
  bool next(Exchange& exchange) override {
    if (has_told_) throw UsageError(verdict());
    has_told_ = true;
    exchange.offers = {&offer_, 1};
    exchange.takes = {&offer_.bytes, 1};
    return true;
  }
  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes > 0)
        std::memcpy(told_[p].data() + from[p].offset, from[p].data, static_cast<size_t>(from[p].bytes));
    }
  }

 protected:
  // Until a rank has told, it counts as having told what this one does.
  TellAll(std::vector<std::byte> own, int ranks)
      : own_(std::move(own)),
        told_(static_cast<size_t>(ranks), own_),
        offer_{own_.data(), static_cast<int64_t>(own_.size())} {}

  const std::vector<std::byte>& told(size_t rank) const { return told_[rank]; }
  size_t ranks() const { return told_.size(); }
  virtual std::string verdict() const = 0;

 private:
  const std::vector<std::byte> own_;
  std::vector<std::vector<std::byte>> told_;  // by rank
  const ConstBlock offer_;
  bool has_told_ = false;
};

}  // namespace tutti::comm
