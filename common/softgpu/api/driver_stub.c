// libcuda.so.1: empty. It needs libcudart.so.13, whose driver functions a program that links or
// opens libcuda.so.1 then finds.
const char softgpu_driver[] = "see libcudart.so.13";
