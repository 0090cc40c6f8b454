//! The counters of a drive that grow when it fails, with the names that drives and smartctl give them.

use serde::{Deserialize, Serialize};

/// A counter of a drive. All of them are 0 on a new drive and never fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Sectors that the drive replaced by spare ones.
    ReallocatedSectors,
    /// Sectors that the drive cannot read and has not replaced yet.
    PendingSectors,
    /// Sectors that the drive's own scan could not read.
    OfflineUncorrectable,
    /// Reads that failed after the drive's error correction.
    ReportedUncorrectable,
    /// Tries to spin up that had to be repeated.
    SpinRetries,
    /// Transfers between drive and controller that arrived damaged.
    CrcErrors,
    /// NVMe: reads and writes that failed after error correction.
    MediaErrors,
    /// Percent of the rated writes of an SSD that are used up; may pass 100.
    PercentageUsed,
    /// SCSI: defects that appeared after the drive left the factory.
    GrownDefects,
    /// SCSI: reads, writes and verifications that failed after error correction.
    UncorrectedErrors,
    /// Reads from the drive that failed, as the pool counted them.
    PoolReadErrors,
    /// Writes to the drive that failed, as the pool counted them.
    PoolWriteErrors,
    /// Blocks of the drive whose checksum was wrong, as the pool counted them.
    PoolChecksumErrors,
}

impl Counter {
    /// The attribute as smartctl, nvme-cli and zpool(8) print it.
    pub const fn attribute(self) -> &'static str {
        match self {
            Self::ReallocatedSectors => "Reallocated_Sector_Ct (5)",
            Self::PendingSectors => "Current_Pending_Sector (197)",
            Self::OfflineUncorrectable => "Offline_Uncorrectable (198)",
            Self::ReportedUncorrectable => "Reported_Uncorrect (187)",
            Self::SpinRetries => "Spin_Retry_Count (10)",
            Self::CrcErrors => "UDMA_CRC_Error_Count (199)",
            Self::MediaErrors => "media_errors",
            Self::PercentageUsed => "percentage_used",
            Self::GrownDefects => "grown defect list",
            Self::UncorrectedErrors => "total uncorrected errors",
            Self::PoolReadErrors => "READ of zpool status",
            Self::PoolWriteErrors => "WRITE of zpool status",
            Self::PoolChecksumErrors => "CKSUM of zpool status",
        }
    }

    /// The name in JSON and in notes.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ReallocatedSectors => "reallocated_sectors",
            Self::PendingSectors => "pending_sectors",
            Self::OfflineUncorrectable => "offline_uncorrectable",
            Self::ReportedUncorrectable => "reported_uncorrectable",
            Self::SpinRetries => "spin_retries",
            Self::CrcErrors => "crc_errors",
            Self::MediaErrors => "media_errors",
            Self::PercentageUsed => "percentage_used",
            Self::GrownDefects => "grown_defects",
            Self::UncorrectedErrors => "uncorrected_errors",
            Self::PoolReadErrors => "pool_read_errors",
            Self::PoolWriteErrors => "pool_write_errors",
            Self::PoolChecksumErrors => "pool_checksum_errors",
        }
    }

    /// The number of the ATA attribute.
    pub(crate) const fn ata_id(self) -> Option<u64> {
        Some(match self {
            Self::ReallocatedSectors => 5,
            Self::SpinRetries => 10,
            Self::ReportedUncorrectable => 187,
            Self::PendingSectors => 197,
            Self::OfflineUncorrectable => 198,
            Self::CrcErrors => 199,
            _ => return None,
        })
    }

    /// The counter of an ATA attribute.
    pub(crate) fn from_ata(id: u64) -> Option<Self> {
        let all = [
            Self::ReallocatedSectors,
            Self::SpinRetries,
            Self::ReportedUncorrectable,
            Self::PendingSectors,
            Self::OfflineUncorrectable,
            Self::CrcErrors,
        ];
        all.into_iter().find(|counter| counter.ata_id() == Some(id))
    }
}
