// SIGUSR1 asks a process for the flight recorder dumps of all its ranks, also while they are stuck in a collective.
#pragma once

namespace tutti::comm {

class FlightRecorder;

// From now on SIGUSR1 writes the dump of every recorder of this process and says on stderr where, one line each. A
// handler that the program installed before is called as well; one that it installs later takes the signal over. The
// handler only wakes a thread, which does the work. Calling again is fine; after fork() the child calls for itself.
// Any thread.
void install_dump_signal();

namespace detail {
void add_to_dump_signal(FlightRecorder& recorder);
void remove_from_dump_signal(FlightRecorder& recorder);  // waits for a dump under way
}  // namespace detail

}  // namespace tutti::comm
