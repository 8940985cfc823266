// Collective: one call of one collective on one rank, as a series of exchanges.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/transport.h"

namespace tutti::comm {

class Collective : public Receiver {
 public:
  // Fills in the next exchange (cleared before); false when the call is finished and its outputs are complete. What the
  // exchange refers to belongs to the collective.
  virtual bool next(Exchange& exchange) = 0;
  // When the ranks' lists of tensors differ behind the first: what ends on all ranks with a UsageError that says where.
  virtual std::unique_ptr<Collective> inquire(const std::string& /*group*/, int /*ranks*/) const { return nullptr; }

  CallRecord record;
};

}  // namespace tutti::comm
