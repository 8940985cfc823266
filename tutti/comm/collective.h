// Collective: one call of one collective on one rank, as a series of exchanges.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/transport.h"

namespace tutti::comm {

class Collective : public Receiver {
 public:
  // Fills in the next exchange, which has been cleared; false when the call is finished and its outputs are complete.
  // The collective owns what the exchange refers to.
  virtual bool next(Exchange& exchange) = 0;
  // For ranks whose lists of tensors differ after the first one: a collective that ends on all ranks with a UsageError
  // saying where.
  virtual std::unique_ptr<Collective> inquire(const std::string& /*group*/, int /*ranks*/) const { return nullptr; }

  // Why this rank does not make its call; "" when it does.
  virtual std::string refusal() const { return ""; }

  CallRecord record;
};

}  // namespace tutti::comm
