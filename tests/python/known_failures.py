"""What fails on device rgpu and is known to, each with its reason: ten at most.

A test whose id ends with the key is expected to fail; when it passes, the line must go.
"""

KNOWN = {
    "test_out_variant[addr-wider_dtype]": "the shape function casts where the CPU's kernel refuses",
    "test_out_variant[bernoulli-wrong_dtype]": "the shape function refuses what the CPU's takes",
    "test_out_variant[_chunk_cat-wrong_dtype]": "the shape function refuses what the CPU's takes",
    "test_out_variant[nanmean-wrong_dtype]": "RuntimeError, where the CPU says NotImplementedError",
    "test_out_variant[nansum-wrong_dtype]": "RuntimeError, where the CPU says NotImplementedError",
    "test_inplace_variant[addbmm]": "refused where the CPU lets addbmm_ make its tensor larger",
    "test_errors_dot_rgpu": "the text names aten::dot and the two dtypes in other words",
    "test_errors_vdot_rgpu": "the text names aten::vdot and the two dtypes in other words",
    "test_errors_multinomial_rgpu": "the text is the shape function's",
    "test_errors_narrow_copy_rgpu": "the text is the shape function's",
}
