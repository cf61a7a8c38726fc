/* SPDX-License-Identifier: Apache-2.0 */
/* Days and dates: see calendar.h. Years begin in March here, so that a leap day
 * is the last one. */
#include "modules/durable/server/calendar.h"

int64_t
day_of(int64_t year, unsigned month, unsigned day)
{
	int64_t era;
	unsigned of_era, of_year;

	year -= month <= 2;
	era = (year >= 0 ? year : year - 399) / 400;
	of_era = (unsigned)(year - era * 400);
	of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
	return era * 146097 +
	    (int64_t)(of_era * 365 + of_era / 4 - of_era / 100 + of_year) -
	    719468;
}

void
day_read(int64_t number, int64_t *year, unsigned *month, unsigned *day)
{
	int64_t era;
	unsigned of_era, years, of_year, since_march;

	number += 719468;
	era = (number >= 0 ? number : number - 146096) / 146097;
	of_era = (unsigned)(number - era * 146097);
	years =
	    (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * years + years / 4 - years / 100);
	since_march = (5 * of_year + 2) / 153;
	*day = of_year - (153 * since_march + 2) / 5 + 1;
	*month = since_march < 10 ? since_march + 3 : since_march - 9;
	*year = (int64_t)years + era * 400 + (*month <= 2);
}

unsigned
day_weekday(int64_t number)
{
	return (unsigned)(((number + 4) % 7 + 7) % 7);
}
