/* SPDX-License-Identifier: Apache-2.0 */
Test(also_good, doing)
{
	assert_rc(hwt_more_do(), -EPERM);
}

Test(also_good, undoing)
{
	assert_rc(hwt_more_undo(), -EPERM);
}
