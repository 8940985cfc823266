// Coefficients of the emitted math functions, lowest power first; made by coefficients.py.
#pragma once

namespace tutti::codegen {

// Weighted error 2^-28.1.
inline constexpr double kExpF32[] = {0x1.fffffcp-2, 0x1.555488p-3, 0x1.555886p-5, 0x1.123faap-7, 0x1.6a803ep-10};
// Weighted error 2^-31.03.
inline constexpr double kExpm1F32[] = {0x1p-1,        0x1.555556p-3,  0x1.5554fp-5,
                                       0x1.110fe2p-7, 0x1.6d43d2p-10, 0x1.a28f3p-13};
// Weighted error 2^-61.6.
inline constexpr double kExpF64[] = {0x1p-1,
                                     0x1.5555555555559p-3,
                                     0x1.5555555555557p-5,
                                     0x1.111111110f621p-7,
                                     0x1.6c16c16c1575dp-10,
                                     0x1.a01a01b02644bp-13,
                                     0x1.a01a01ab27e59p-16,
                                     0x1.71ddf79b6c1b6p-19,
                                     0x1.27e4d10407adcp-22,
                                     0x1.af601fa9498e9p-26,
                                     0x1.1f8463cdf3cd4p-29};
// Weighted error 2^-28.21.
inline constexpr double kExp2F32[] = {0x1.62e43p-1,  0x1.ebfbep-3,   0x1.c6af72p-5,
                                      0x1.3b2a48p-7, 0x1.5f0dccp-10, 0x1.4423fcp-13};
// Weighted error 2^-59.64.
inline constexpr double kExp2F64[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58fp-3,  0x1.c6b08d704a1d6p-5,
                                      0x1.3b2ab6fba4d7ap-7,  0x1.5d87fe7873cbdp-10, 0x1.430912f8a977bp-13,
                                      0x1.ffcbfd4befbecp-17, 0x1.62c0216cf9b46p-20, 0x1.b5232c3083eap-24,
                                      0x1.e4d1b4efbb13p-28,  0x1.ec7aafe2f90f1p-32, 0x1.c180af8039c03p-36};
// Weighted error 2^-29.93.
inline constexpr double kLogF32[] = {0x1.555558p-2,  -0x1.ffff06p-3, 0x1.9996dap-3,  -0x1.559a78p-3, 0x1.2504bcp-3,
                                     -0x1.f3643ep-4, 0x1.b7343ep-4,  -0x1.075f92p-3, 0x1.f067aep-4};
// Weighted error 2^-58.48.
inline constexpr double kLogF64[] = {0x1.5555555555593p-1, 0x1.999999997f9f8p-2, 0x1.249249422a456p-2,
                                     0x1.c71c51d7d14ep-3,  0x1.746649ae7473ap-3, 0x1.39a095bd7a95ap-3,
                                     0x1.2f117c58d7213p-3};
// Weighted error 2^-72.47.
inline constexpr double kPowLogF64[] = {0x1.9999999999996p-2, 0x1.2492492492f53p-2, 0x1.c71c71c5962b5p-3,
                                        0x1.745d182993c3ep-3, 0x1.3b1364b660c0bp-3, 0x1.11207251bf851p-3,
                                        0x1.de3ce79066dc6p-4, 0x1.eaca74015c5a7p-4};
// Weighted error 2^-27.97.
inline constexpr double kSinF32[] = {-0x1.555546p-3, 0x1.110774p-7, -0x1.99516ep-13};
// Weighted error 2^-33.11.
inline constexpr double kCosF32[] = {0x1.55554ap-5, -0x1.6c0c2ap-10, 0x1.99e8b8p-16};
// Weighted error 2^-57.89.
inline constexpr double kSinF64[] = {-0x1.5555555555548p-3, 0x1.111111110f747p-7,   -0x1.a01a019bed047p-13,
                                     0x1.71de3558c8bcbp-19, -0x1.ae5e4e506ac9dp-26, 0x1.5d8c1b0c0fdfap-33};
// Weighted error 2^-64.09.
inline constexpr double kCosF64[] = {0x1.555555555554bp-5,   -0x1.6c16c16c15003p-10, 0x1.a01a019c8b2efp-16,
                                     -0x1.27e4f7ed08f55p-22, 0x1.1ee9d79ba5d9ep-29,  -0x1.8fa3c93098727p-37};
// Weighted error 2^-59.81.
inline constexpr double kAsinF64[] = {
    0x1.5555555555578p-3, 0x1.333333332df2p-4,   0x1.6db6db722aac9p-5, 0x1.f1c71a8bf1913p-6, 0x1.6e8bdfdbeee02p-6,
    0x1.1c49ded4487ccp-6, 0x1.ca212f03fca41p-7,  0x1.757846678ad2dp-7, 0x1.618673640f38bp-7, 0x1.e19efcfa41ee3p-9,
    0x1.64ec8716a4328p-6, -0x1.59d6f26960f8dp-6, 0x1.0bda2e63acfe6p-5};
// Weighted error 2^-56.98.
inline constexpr double kAtanF64[] = {
    -0x1.555555555552ap-2, 0x1.9999999995aecp-3,  -0x1.2492492390a24p-3, 0x1.c71c71836555dp-4,   -0x1.745d11e7af01dp-4,
    0x1.3b1368f82f3e8p-4,  -0x1.110e62d1c1e49p-4, 0x1.e1bc67cd1580ap-5,  -0x1.ae619017ac24p-5,   0x1.82e4b2019ac67p-5,
    -0x1.59bc30eeb6b85p-5, 0x1.2c5cc18a336f6p-5,  -0x1.ea851d38a45b5p-6, 0x1.68deee4383a5bp-6,   -0x1.c8b2b6d3b04b6p-7,
    0x1.d942c3dd57f86p-8,  -0x1.7bbde56a19c1p-9,  0x1.b609b348c5f73p-11, -0x1.40edd39eb2e45p-13, 0x1.be950e9eafb1ep-17};
// Weighted error 2^-29.94.
inline constexpr double kErfF32[] = {0x1.06eba8p-3, -0x1.812742p-2,  0x1.ce2df2p-4, -0x1.b80db6p-6,
                                     0x1.54c616p-8, -0x1.aa54c4p-11, 0x1.5d7882p-14};
// Weighted error 2^-30.17.
inline constexpr double kErfTailF32[] = {0x1.0778dep-3, 0x1.45328cp-1,   0x1.b32582p-4, -0x1.85517ap-6,
                                         0x1.dd6ce6p-9, -0x1.527b9cp-12, 0x1.78d6fep-17};
// Weighted error 2^-56.16.
inline constexpr double kErfF64[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379fcp-2,  0x1.ce2f21a0434c9p-4,
                                     -0x1.b82ce312a1da7p-6,  0x1.565bcd1063d86p-8,   -0x1.c02db40e2c325p-11,
                                     0x1.f9a31f7a27d7ap-14,  -0x1.f4d1073639919p-17, 0x1.b9c9f59e88411p-20,
                                     -0x1.5e048924146c8p-23, 0x1.e69d17ecc7d33p-27,  -0x1.e00be8d7c2e2p-31};
// Weighted error 2^-60.32.
inline constexpr double kErfTailF64[] = {
    0x1.06ebac8ecab17p-3,   0x1.45f2f99d0a80ep-1,   0x1.a4f737383b5bep-4,   -0x1.3987568702505p-6,
    -0x1.8e31aae2f21ccp-13, 0x1.b35343f60fdf1p-10,  -0x1.1ad8741ece274p-11, -0x1.052a9cbc16db3p-15,
    0x1.e62a5a059e41ep-14,  -0x1.1930295d55c19p-14, 0x1.a4aaa7884afebp-16,  -0x1.d570cc3d4ba83p-18,
    0x1.956bb3392b4aap-20,  -0x1.0f980589649f7p-22, 0x1.1511001e4506fp-25,  -0x1.9cfed807e8b82p-29,
    0x1.9e55bf6362293p-33,  -0x1.ca6b6b113589cp-38, 0x1.2cd3f6c042c2p-45,   0x1.12cce902fdd39p-48};
// Weighted error 2^-24.56.
inline constexpr double kErfcxF32[] = {0x1.40c522p+0,  -0x1.15c07ep-3,  -0x1.859f1p-5,   0x1.0982bcp-3,
                                       -0x1.e892c8p-4, 0x1.17d442p-4,   -0x1.8524e4p-6,  0x1.474378p-9,
                                       0x1.e86226p-10, -0x1.7bbe96p-11, -0x1.71de8cp-14, 0x1.412742p-14};
// Weighted error 2^-54.62.
inline constexpr double kErfcxF64[] = {
    0x1.40c522d7e4987p+0,  -0x1.15c084bb9e8f3p-3,  -0x1.85a15c58aa2f8p-5,  0x1.098366a5b46e1p-3,
    -0x1.e88b803a4c142p-4, 0x1.17ca2877f05edp-4,   -0x1.8574c40b2a7eep-6,  0x1.4b884e45ae08dp-9,
    0x1.ef1bdcfe19e69p-10, -0x1.98db515585b74p-11, -0x1.b91264855992cp-14, 0x1.065a3e3c47757p-13,
    0x1.4c2446b6b2817p-18, -0x1.513c57c242d85p-16, -0x1.889df389b860ep-21, 0x1.d22232bf317ap-19,
    0x1.7f5327587c944p-22, -0x1.4b81b59082369p-21, -0x1.31fa3d53b373ep-23, 0x1.b919956b745fbp-24,
    0x1.72aa063e19482p-25, -0x1.dc2a5cef24f26p-27, -0x1.49156363579dcp-27, 0x1.45b8f3e68e107p-30,
    0x1.71d985a631d4ap-30, -0x1.182d2ee156811p-35, -0x1.698910686edf1p-34};
// Weighted error 2^-54.89.
inline constexpr double kLgammaOneF64[] = {
    -0x1.2788cfc6fb619p-1, 0x1.a51a6625307d1p-1,  -0x1.9a4d55beab304p-2, 0x1.151322ac7e1dp-2,   -0x1.a8b9c17a97c43p-3,
    0x1.5b40cb0f1072ep-3,  -0x1.2703a1e37881dp-3, 0x1.010b37117a83fp-3,  -0x1.c8066e7d84f09p-4, 0x1.9a01bbe92986bp-4,
    -0x1.748c2be4e3bf1p-4, 0x1.556f0ffca2556p-4,  -0x1.3b26a6ed50e98p-4, 0x1.24609dda8cc6bp-4,  -0x1.1028b9d44efdfp-4,
    0x1.006a74f405d4cp-4,  -0x1.f35745b3cb66fp-5, 0x1.e64ecef13a275p-5,  -0x1.966969f9e5a54p-5, 0x1.cddcbcdb0d10cp-6,
    -0x1.f2a4b834c89p-8};
// Weighted error 2^-55.56.
inline constexpr double kLgammaTwoF64[] = {0x1.b0ee6072093cep-2,   0x1.4a34cc4a60fa4p-2,   -0x1.13e001a5575e3p-4,
                                           0x1.51322ac7d98a8p-6,   -0x1.e404fc2194ae6p-8,  0x1.7add6eac0b24bp-9,
                                           -0x1.38ac5c28d2e95p-10, 0x1.0b36b007313ddp-11,  -0x1.d3fd4f1038eeep-13,
                                           0x1.a127887590d88p-14,  -0x1.78ddc8eb8336ap-15, 0x1.581113ec053dap-16,
                                           -0x1.3ccde73e1bcc6p-17, 0x1.257ec75b7d909p-18,  -0x1.10a1edfc938e5p-19,
                                           0x1.ff01988db013p-21,   -0x1.f0fd14a99485fp-22, 0x1.eec428c6742d5p-23,
                                           -0x1.b0bd0f3af4c82p-24, 0x1.031b7597d4809p-25,  -0x1.25b21860c9313p-28};
// Weighted error 2^-57.59.
inline constexpr double kStirlingF64[] = {0x1.5555555555555p-4,   -0x1.6c16c16c107e3p-9, 0x1.a01a015bdfb5ep-11,
                                          -0x1.38132efd60fe8p-11, 0x1.b91eafc149248p-11, -0x1.ee057b68e0524p-10,
                                          0x1.41c9e20ec479ap-8,   0x1.53e24fa41d263p-10};
// Weighted error 2^-55.95.
inline constexpr double kErfinvF64[] = {
    0x1.a755e7c99ae86p+0,   0x1.ebd80d9b13df9p-3,   -0x1.8b6c33114eb6fp-8,  -0x1.8457694834f74p-11,
    0x1.879c2a20b725ep-13,  -0x1.d1d1f7ca7d765p-17, -0x1.6e8a53ce20e51p-20, 0x1.c6b4f89d10636p-22,
    -0x1.f36ced7a1d3edp-26, -0x1.1a9eb49036b4cp-28, 0x1.20f539de8c9c7p-30,  -0x1.dc3e20b476ec2p-35,
    -0x1.c8a4ea4282e1p-37,  0x1.7230b1a0f22a4p-39,  -0x1.6bb6773f4bdccp-44, -0x1.6822769119a86p-45,
    0x1.d64ee4497761bp-48,  -0x1.9ec7bf2aa3cb4p-55, -0x1.1aaa327e069eap-53, 0x1.2871acc8a8658p-56,
    0x1.6e52c3628081ep-61,  -0x1.c48de8dfb1d25p-62, 0x1.8637ba96959f9p-66,  0x1.5683387774209p-68,
    -0x1.032078da0bff8p-71, -0x1.a8438d773a801p-76, 0x1.0b98a50fb6ae7p-79};
// Weighted error 2^-54.97.
inline constexpr double kErfinvMiddleF64[] = {
    0x1.8abcc380d5a48p+1,   0x1.0158a6d641d54p+0,   0x1.5ffcfe5b6906cp-8,   -0x1.ebadabb9f9ac9p-9,
    0x1.468eecaaa115p-9,    -0x1.ba9240dade464p-10, 0x1.f3cc53ea60be5p-11,  -0x1.7448bc2d14cb8p-12,
    0x1.932f3959c5211p-16,  0x1.1e6aa5c73170fp-14,  -0x1.8cf6c4dd0f668p-15, 0x1.a2459904ac8cep-17,
    0x1.8a4a941525351p-19,  -0x1.0b949409804d6p-18, 0x1.898d5976b810ap-20,  -0x1.9f5d94414b9ep-26,
    -0x1.cd817350c5485p-23, 0x1.1081f9a81ea02p-23,  -0x1.f942b5eb71b62p-25, -0x1.928b79561ae8p-27,
    0x1.27e9049eed56fp-25,  -0x1.4465656709684p-30, -0x1.1a5f3b416e327p-27};
// Weighted error 2^-55.7.
inline constexpr double kErfinvFarF64[] = {
    0x1.3664ddd1ad7fbp+2,  0x1.02a30d1fba10bp+0,   -0x1.22ea5df208cadp-13, -0x1.c2f36aa1471fap-13,
    0x1.3ebf4f072dfadp-14, -0x1.4a34904ded535p-16, 0x1.2fbcf496dcaep-18,   -0x1.0a902f33b655bp-20,
    0x1.ebea810d4fb5cp-23, -0x1.22397406598ddp-24, 0x1.f199cd70deac9p-26,  -0x1.055b4906adfd1p-26,
    0x1.119f948764cd5p-27, -0x1.e5c95fd372592p-29, 0x1.26f02810b88b6p-30,  -0x1.a34fcc42049fcp-32,
    0x1.76a9983322553p-32, 0x1.18ee246e68df4p-36,  -0x1.cede6f8255a6bp-33, 0x1.61b4f66040766p-38,
    0x1.4e3176fa41f5cp-34, 0x1.e47bae004339p-43,   -0x1.d0cf7fb8a03dbp-37};

}  // namespace tutti::codegen
