//! The calendar: from days since 1970 to a date.

/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// Year, month (1 to 12) and day of the month of a number of days since 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that a leap day is the last day of a year. Any time of a pool has a date: the
/// days of 2^64 seconds do not overflow.
pub const fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 - day_of_era / 36524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        // as `date -u -d @SECONDS +%Y-%m-%d` prints them
        for (seconds, date) in [
            (0, (1970, 1, 1)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (1_798_761_599, (2026, 12, 31)),
            (4_107_542_400, (2100, 3, 1)),
        ] {
            assert_eq!(civil_date(seconds / 86400), date, "{seconds}");
        }
    }
}
