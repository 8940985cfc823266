// The ops of collectives in the runtime of packages.
#pragma once

namespace tutti::deploy {

// Adds them to the op table, once.
bool join_collective_ops();

}  // namespace tutti::deploy
