// A library that says it is NCCL and has nothing else.
extern "C" int ncclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
