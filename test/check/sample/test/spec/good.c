/* SPDX-License-Identifier: Apache-2.0 */
Test(very_good, each_error_is_asked_for)
{
	assert_rc(hwt_do(1), -EPERM);
	assert_rc(hwt_do(2), -EBUSY);
	assert_rc(hwt_do(3), -EAGAIN);
}

Test(very_good, all_errors_are_asked_for)
{
	assert_rc(hwt_do_all(), -EPERM);
	assert_rc(hwt_do_all(), -EBUSY);
	assert_rc(hwt_do_all(), -EAGAIN);
	assert_rc(hwt_do_all(), -EINVAL);
}
