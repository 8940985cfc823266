// SIGUSR1 makes a process write the flight recorder dumps of all its ranks, even while they are stuck in a collective.
#pragma once

namespace tutti::comm {

class FlightRecorder;

// From now on SIGUSR1 writes the dump of every recorder of this process and prints the path of each on stderr. A
// handler that the program installed before is called as well; one that it installs later replaces this one. The
// handler only wakes a thread, which does the work. It may be called repeatedly and by any thread; after fork() the
// child must call it again.
void install_dump_signal();

namespace detail {
void add_to_dump_signal(FlightRecorder& recorder);
void remove_from_dump_signal(FlightRecorder& recorder);  // waits for a dump under way
}  // namespace detail

}  // namespace tutti::comm
