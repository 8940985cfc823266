// A library that has the version functions of all three and nothing else.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuGetErrorString(int, const char** text) {
  *text = "";
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
int ncclGetVersion(int* version) {
  *version = 23000;
  return 0;
}
const char* ncclGetErrorString(int) { return ""; }
void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  *major = 3;
  *minor = *patch = 0;
}
}
